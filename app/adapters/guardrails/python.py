"""Guardrails that are Python functions in this process."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from app.adapters.plugins import BadPlugin, PluginKind, load_plugins
from app.adapters.tools.threads import Escaped, Threads
from app.core.guardrails.base import CalledRule, Severity
from app.core.json_text import storable
from app.ports.guardrails import GuardrailFailed

ENTRY_POINTS: Final = "branchline.guardrails"
"""The group in which a package announces its guardrails."""
TIME_LIMIT_S: Final = 2.0
THREADS: Final = 4
"""Of each plain function: one that hangs takes none from the others."""
MAX_FINDINGS: Final = 100

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A function that judges answers: it is given the text and whether that is all of it.

    It returns nothing, a text, an object with `message` and, optionally, `severity`, `recoverable`,
    `position` and `suggestion`, or several of those. A plain function runs in a thread.
    """

    name: str
    func: Callable[[str, bool], Any]
    streaming: bool = False
    """Whether it also judges an answer that is not all there; the model's answer waits for it then."""
    severity: Severity = "error"
    description: str = ""


def _stored(text: Any) -> Any:
    return storable(text) if isinstance(text, str) else text


_Text = Annotated[str, BeforeValidator(_stored)]


class _Finding(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    message: _Text = Field(min_length=1, max_length=2_000)
    severity: Severity | None = None
    recoverable: bool = True
    position: int | None = Field(None, ge=0)
    suggestion: _Text | None = Field(None, max_length=2_000)


class InvalidGuardrail(BadPlugin):
    """Something cannot be used as a guardrail; the message says what and why."""


def _guardrail(declared: Any) -> Guardrail:
    if isinstance(declared, Guardrail):
        return declared
    raise InvalidGuardrail(f"{declared!r} is no Guardrail")


GUARDRAILS: Final = PluginKind(ENTRY_POINTS, "GUARDRAILS", _guardrail, InvalidGuardrail)


def load_guardrails(modules: Iterable[str] = ()) -> list[Guardrail]:
    """Those of all entry points, then those of `modules`, each with a list `GUARDRAILS`.

    Raises InvalidGuardrail.
    """
    return load_plugins(GUARDRAILS, modules)


class PythonGuardrails:
    """Calls them; see `ports.guardrails.CalledGuardrails`."""

    def __init__(self, guardrails: Iterable[Guardrail], *, time_limit_s: float = TIME_LIMIT_S) -> None:
        """Raises InvalidGuardrail for one that cannot be called, or whose name is taken."""
        self._guardrails: dict[str, Guardrail] = {}
        self._threads: dict[str, Threads] = {}
        self._time_limit_s = time_limit_s
        for guardrail in guardrails:
            _check(guardrail)
            if guardrail.name in self._guardrails:
                raise InvalidGuardrail(f"guardrail {guardrail.name!r} is declared twice")
            self._guardrails[guardrail.name] = guardrail
            self._threads[guardrail.name] = Threads(THREADS, f"guardrail-{guardrail.name}")
        self.rules: Mapping[str, CalledRule] = MappingProxyType(
            {
                name: CalledRule(name, streaming=entry.streaming, severity=entry.severity)
                for name, entry in self._guardrails.items()
            }
        )

    @property
    def descriptions(self) -> Mapping[str, str]:
        """What each is for, by name."""
        return {name: entry.description for name, entry in self._guardrails.items()}

    async def call(self, name: str, text: str, *, final: bool) -> Sequence[Mapping[str, Any]]:
        """See the port. What does not end in time is left to itself: a thread cannot be stopped."""
        guardrail = self._guardrails.get(name)
        if guardrail is None:
            raise GuardrailFailed(f"there is no guardrail {name!r} in this process")
        verdict = asyncio.create_task(self._verdict(guardrail, text, final))
        verdict.add_done_callback(_heard)
        try:
            await asyncio.wait({verdict}, timeout=self._time_limit_s)
        finally:
            verdict.cancel()
        if not verdict.done():
            raise GuardrailFailed(f"no verdict within {self._time_limit_s:g} s")
        if verdict.cancelled():
            raise GuardrailFailed("it was cancelled from within")
        return verdict.result()

    def close(self) -> None:
        """Let the threads end."""
        for threads in self._threads.values():
            threads.close()

    async def _verdict(self, guardrail: Guardrail, text: str, final: bool) -> list[dict[str, Any]]:
        try:
            return _findings(await self._found(guardrail, text, final))
        except GuardrailFailed:
            raise
        except Escaped as failure:
            raise _failed(failure.type, failure) from None
        except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as failure:
            # The last three must not reach the event loop, which they would end.
            raise _failed(type(failure).__name__, failure) from None

    async def _found(self, guardrail: Guardrail, text: str, final: bool) -> Any:
        func = guardrail.func
        if inspect.iscoroutinefunction(func):
            return await func(text, final)
        found = await self._threads[guardrail.name].run(lambda: _listed(func(text, final)))
        return await found if inspect.isawaitable(found) else found


def _heard(verdict: asyncio.Task[Any]) -> None:
    """Nobody may be there any more to hear how it failed."""
    if not verdict.cancelled():
        verdict.exception()


def _failed(kind: str, failure: BaseException) -> GuardrailFailed:
    return GuardrailFailed(storable(f"{kind}: {str(failure)[:200]}"))


def _check(guardrail: Guardrail) -> None:
    if not _NAME.fullmatch(guardrail.name):
        raise InvalidGuardrail(f"{guardrail.name!r} is no name: up to 64 letters, digits, `_` and `-`")
    if not callable(guardrail.func):
        raise InvalidGuardrail(f"guardrail {guardrail.name!r} has no function")


def _listed(found: Any) -> Any:
    """A generator runs in the thread that made it."""
    return list(found) if inspect.isgenerator(found) else found


def _findings(found: Any) -> list[dict[str, Any]]:
    if found is None:
        return []
    entries = list(found) if isinstance(found, Iterable) and not isinstance(found, str | Mapping) else [found]
    if len(entries) > MAX_FINDINGS:
        raise GuardrailFailed(f"{len(entries)} findings, at most {MAX_FINDINGS} are taken")
    try:
        return [_finding(entry) for entry in entries]
    except ValidationError as error:
        fault = error.errors()[0]
        at = ".".join(map(str, fault["loc"]))
        raise GuardrailFailed(f"this is no finding: {at}: {fault['msg']}") from None


def _finding(entry: Any) -> dict[str, Any]:
    said = {"message": entry} if isinstance(entry, str) else entry
    return _Finding.model_validate(said).model_dump(exclude_none=True)
