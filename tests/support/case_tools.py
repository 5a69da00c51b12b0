"""The tools that the failures from the field ask for."""

from __future__ import annotations

CALLED: list[tuple[str, dict[str, object]]] = []
"""Name and arguments of every call, in order."""


def _called(tool: str, **arguments: object) -> str:
    CALLED.append((tool, arguments))
    return f"{tool} was called"


def get_city(id: int) -> str:
    """Name a city."""
    return _called("get_city", id=id)


def weather(city: str) -> str:
    """Tell the weather."""
    return _called("weather", city=city)


def get_weather(city: str, unit: str) -> str:
    """Tell the weather in a unit."""
    return _called("get_weather", city=city, unit=unit)


def lookup(k: int) -> str:
    """Look a number up."""
    return _called("lookup", k=k)


def list_rooms() -> str:
    """Name all rooms."""
    return _called("list_rooms")


def ping() -> str:
    """Answer."""
    return _called("ping")


def now() -> str:
    """Tell the time."""
    return _called("now")


def a() -> str:
    """The first of two."""
    return _called("a")


def b() -> str:
    """The second of two."""
    return _called("b")


def stock(sku: str) -> str:
    """Count what is in stock."""
    return _called("stock", sku=sku)


def note(text: str, n: float) -> str:
    """Write something down."""
    return _called("note", text=text, n=n)


def rate(c: str) -> str:
    """Tell what a currency is worth."""
    return _called("rate", c=c)


def book(room: str) -> str:
    """Reserve a room."""
    return _called("book", room=room)


TOOLS = [get_city, weather, get_weather, lookup, list_rooms, ping, now, a, b, stock, note, rate, book]
