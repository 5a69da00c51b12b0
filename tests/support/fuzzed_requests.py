"""Requests of every route, from noise to ones that are as good as right, as bytes on a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_from_bytes

from hypothesis import strategies as st

from tests.support.api import openapi_document
from tests.support.fuzzing import damaged, encoded, json_of, nearly

DOCUMENT: Final = openapi_document()
ANSWERED_WITHIN_S: Final = 60.0
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Comes before the answer where a request expects it."""

PLAUSIBLE: Final[Mapping[str, list[bytes]]] = {
    "Prefer": [
        b"wait=1",
        b"wait=-1",
        b"wait=x",
        b"respond-async",
        b"wait=" + b"9" * 5_000,
        b"wait=1, respond-async",
    ],
    "Accept": [b"text/event-stream", b"application/json", b"*/*;q=0", b"text/event-stream;q=x", b",,;"],
    "If-Match": [b'"1"', b"1", b"*", b'W/"1"', b'"' + b"9" * 30 + b'"', b'"-1", "2"'],
    "Idempotency-Key": [b"k", b'"k"', b"", b"x" * 300, b"\xc3\xa4"],
    "Last-Event-ID": [b"1", b"0", b"-1", b"9" * 30, b"x", b"1:2"],
    "Authorization": [b"Bearer", b"Bearer x", b"Basic Og==", b"Bearer bl_" + b"x" * 40],
    "Content-Type": [
        b"application/json",
        b"application/json; charset=utf-16",
        b"text/plain",
        b"multipart/form-data",
        b";",
    ],
    "Content-Encoding": [b"gzip", b"identity"],
    "X-Request-Id": [b"mine", b"a b", b"x" * 200],
    "Origin": [b"http://localhost", b"null", b"https://example.test"],
    "Expect": [b"100-continue"],
    "Range": [b"bytes=0-1"],
    "Connection": [b"upgrade", b"close"],
    "Upgrade": [b"websocket", b"h2c"],
    "Cookie": [b"a=b"],
}
_VALUES: Final = [
    *("1", "0", "-1", "1000", "99999999999999999999", "asc", "desc", "x", "", "null", "partial", "callbacks"),
    *(
        "TOKEN,ERROR",
        "2026-11-30T12:00:00Z",
        "2026-13-40",
        "00000000-0000-0000-0000-000000000000",
        "{}",
        '{"a":1}',
    ),
    *(
        "eyJ4IjoxfQ==",
        "completed",
        "function-call",
        "9999-12-31T23:59:59.999999+23:59",
        "0001-01-01T00:00:00-23:59",
    ),
]


@dataclass(frozen=True)
class Operation:
    """One method of one route."""

    method: str
    path: str
    parameters: tuple[str, ...]
    """Names of those in the query."""
    example: Any
    """Of its body; None without one."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _example(operation: Mapping[str, Any]) -> Any:
    said = (operation.get("requestBody") or {}).get("content", {}).get("application/json")
    if said is None:
        return None
    return DOCUMENT["components"]["schemas"][said["schema"]["$ref"].rpartition("/")[2]]["examples"][0]


OPERATIONS: Final = [
    Operation(
        method.upper(),
        path,
        tuple(said["name"] for said in operation.get("parameters", []) if said["in"] == "query"),
        _example(operation),
    )
    for path, methods in sorted(DOCUMENT["paths"].items())
    for method, operation in methods.items()
]


@dataclass(frozen=True)
class Sent:
    """A request; `{host}` and the names of path parameters are still to be filled in."""

    operation: Operation
    segments: Mapping[str, bytes]
    """What is no name of something that exists, by parameter."""
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    chunked: bool

    def raw(self, host: str, known: Mapping[str, str]) -> bytes:
        """What goes over the connection."""
        path = self.operation.path
        for name, value in {**{k: v.encode() for k, v in known.items()}, **self.segments}.items():
            path = path.replace("{" + name + "}", quote_from_bytes(value, safe=""))
        line = f"{self.operation.method} {path}".encode() + (b"?" + self.query if self.query else b"")
        length = b"Transfer-Encoding: chunked" if self.chunked else b"Content-Length: %d" % len(self.body)
        headers = [b"Host: " + host.encode(), length, *(name + b": " + value for name, value in self.headers)]
        body = (
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(self.body), self.body)
            if self.chunked and self.body
            else self.body
        )
        if self.chunked and not self.body:
            body = b"0\r\n\r\n"
        return line + b" HTTP/1.1\r\n" + b"\r\n".join(headers) + b"\r\n\r\n" + body


header_values = st.binary(max_size=30).map(
    lambda raw: bytes(byte for byte in raw if byte > 31 and byte != 127)
)
_plausible = st.sampled_from(
    [(name.encode(), value) for name, values in PLAUSIBLE.items() for value in values]
)
_odd = st.tuples(st.sampled_from(sorted(PLAUSIBLE)).map(str.encode), header_values)
_headers = st.one_of(
    st.just(()), _plausible.map(lambda one: (one,)), st.lists(_plausible | _odd, max_size=4).map(tuple)
)
_json = (b"Content-Type", b"application/json")


def _queries(names: tuple[str, ...]) -> st.SearchStrategy[bytes]:
    values = (st.sampled_from(_VALUES).map(str.encode) | st.binary(max_size=12)).map(quote_from_bytes)
    known = st.sampled_from([*names, "limit"]) | st.text(max_size=4).map(
        lambda name: quote_from_bytes(name.encode())
    )
    pairs = st.lists(st.tuples(known, values), max_size=4)
    raw = st.binary(max_size=30).map(lambda found: bytes(byte for byte in found if byte > 32 and byte != 127))
    return pairs.map(lambda said: "&".join(f"{name}={value}" for name, value in said).encode()) | raw


def _bodies(example: Any) -> st.SearchStrategy[bytes]:
    anything = json_of(
        st.sampled_from(["a", "add", "m", "kind", "name", "url", "type", "x-y", "http://127.0.0.1:9"])
    )
    noise = st.just(b"") | st.binary(max_size=200) | anything.map(encoded)
    if example is None:
        return noise
    near = nearly(example, anything).map(encoded)
    return st.one_of(near, near, near, near.flatmap(damaged), noise)


@st.composite
def _request(draw: st.DrawFn, operation: Operation) -> Sent:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    # What exists is never taken away, or soon there would be nothing left to ask for.
    made_up = operation.method == "DELETE" or draw(st.integers(0, 3)) == 0
    segments = {name: draw(st.binary(min_size=1, max_size=20)) for name in names if made_up}
    return Sent(
        operation,
        segments,
        draw(st.just(b"") | _queries(operation.parameters)),
        (*([_json] if draw(st.integers(0, 5)) else []), *draw(_headers)),
        draw(_bodies(operation.example)),
        draw(st.booleans()),
    )


requests = st.sampled_from(OPERATIONS).flatmap(_request)

_IN_CHUNKS: Final = (
    b"POST /v1/branches HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
)

noise = st.one_of(
    st.binary(max_size=300),
    st.just(b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc").flatmap(damaged),
    st.just(_IN_CHUNKS).flatmap(damaged),
    st.builds(
        lambda line, name, value: line + b"\r\n" + name + b": " + value + b"\r\n\r\n",
        st.sampled_from(
            [b"GET / HTTP/1.1", b"GET /v1/runs HTTP/9.9", b"* * *", b"OPTIONS * HTTP/1.1", b"PRI * HTTP/2.0"]
        ),
        st.sampled_from([b"Content-Length", b"Transfer-Encoding", b"Host", b"Connection", b"\xff"]),
        st.sampled_from([b"9" * 5_000, b"-1", b"chunked, chunked", b"\xff", b"0x10", b"1, 2"])
        | header_values,
    ),
)
"""What comes over a connection and may be no request at all."""


async def exchanged(port: int, raw: bytes, *, end: bool = False) -> bytes:
    """The beginning of the answer to what is sent; b"" for none. `end` says that nothing more comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        if end:
            writer.write_eof()
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            answer = await reader.read(64 * 1024)
            return answer.removeprefix(CONTINUE) or await reader.read(64 * 1024)
    except ConnectionError:
        return b""
    finally:
        writer.close()
