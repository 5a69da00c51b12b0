"""A name is resolved once, every answer is checked, and what was checked is what is dialled."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from typing import Any

import httpcore
import pytest

from app.adapters.checked_network import AddressRefused, CheckedNetwork
from app.core.addresses import AddressRule

pytestmark = pytest.mark.anyio

PUBLIC, OTHER, INNER = "93.184.215.14", "2606:2800:21f::1", "127.0.0.1"
ANSWER = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"ok"]


class Names:
    """A resolver whose n-th answer for any name is the n-th of a script; the last one repeats."""

    def __init__(self, *answers: Sequence[str] | Exception) -> None:
        self.asked: list[tuple[str, int]] = []
        self._answers = answers

    async def __call__(self, host: str, port: int) -> list[str]:
        answer = self._answers[min(len(self.asked), len(self._answers) - 1)]
        self.asked.append((host, port))
        if isinstance(answer, Exception):
            raise answer
        return list(answer)


class Line(httpcore.AsyncMockStream):
    """A connection that answers by script; notes what was sent, and whom it took the other side for."""

    def __init__(self, sent: list[bytes], named: list[str | None]) -> None:
        super().__init__(list(ANSWER))
        self._sent = sent
        self._named = named

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See httpcore."""
        self._sent.append(buffer)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """See httpcore."""
        self._named.append(server_hostname)
        return self


class Lines(httpcore.AsyncMockBackend):
    """Makes lines; notes where to."""

    def __init__(self, *unreachable: str) -> None:
        super().__init__([])
        self.dialled: list[tuple[str, int]] = []
        self.sent: list[bytes] = []
        self.named: list[str | None] = []
        self._unreachable = unreachable

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """See httpcore."""
        self.dialled.append((host, port))
        if host in self._unreachable:
            raise httpcore.ConnectError("no route")
        return Line(self.sent, self.named)


async def test_the_address_that_was_checked_is_the_one_that_is_dialled() -> None:
    names, lines = Names([PUBLIC], [INNER]), Lines()
    pool = CheckedNetwork(AddressRule().admits, resolve=names, below=lines).pool(idle_s=0)
    async with pool:
        assert (await pool.request("POST", "https://rebind.test:81/")).content == b"ok"
        assert (lines.dialled, names.asked) == ([(PUBLIC, 81)], [("rebind.test", 81)])
        # The other side is still called, and has to prove to be, what the URL says.
        assert lines.named == ["rebind.test"]
        assert b"host: rebind.test:81\r\n" in b"".join(lines.sent).lower()
        # The name means something else by now, and is asked for and checked anew with the next connection.
        with pytest.raises(AddressRefused):
            await pool.request("POST", "https://rebind.test:81/")
    assert (len(lines.dialled), len(names.asked)) == (1, 2)


@pytest.mark.parametrize(
    ("answers", "dialled"),
    [
        ([INNER, PUBLIC], [PUBLIC]),
        ([PUBLIC, INNER], [PUBLIC]),
        (["::1", OTHER, "::ffff:10.0.0.1"], [OTHER]),
        (["64:ff9b::7f00:1", "2002:7f00:1::", "169.254.169.254"], []),
        ([INNER], []),
        ([], []),
    ],
)
async def test_every_answer_is_checked(answers: list[str], dialled: list[str]) -> None:
    lines = Lines()
    network = CheckedNetwork(AddressRule().admits, resolve=Names(answers), below=lines)
    if dialled:
        await network.connect_tcp("mixed.test", 80)
    else:
        with pytest.raises(AddressRefused, match="may not be reached"):
            await network.connect_tcp("mixed.test", 80)
    assert [host for host, _ in lines.dialled] == dialled


async def test_the_next_address_is_tried_when_one_takes_no_connection() -> None:
    lines = Lines(PUBLIC)
    network = CheckedNetwork(AddressRule().admits, resolve=Names([PUBLIC, INNER, OTHER]), below=lines)
    await network.connect_tcp("both.test", 80, timeout=5)
    assert [host for host, _ in lines.dialled] == [PUBLIC, OTHER]


@pytest.mark.parametrize(
    ("host", "error"),
    [
        ("gone.test", httpcore.ConnectError),
        ("localhost.", AddressRefused),
        ("fe80::1%25eth0", AddressRefused),
    ],
)
async def test_a_name_without_an_address_is_still_judged_as_it_is_written(
    host: str, error: type[Exception]
) -> None:
    network = CheckedNetwork(AddressRule().admits, resolve=Names(OSError("unknown name")), below=Lines())
    with pytest.raises(httpcore.ConnectError) as caught:
        await network.connect_tcp(host, 80)
    assert type(caught.value) is error


async def test_a_resolver_that_never_answers_is_not_waited_for() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(httpcore.ConnectTimeout):
        await CheckedNetwork(AddressRule().admits, resolve=never).connect_tcp("slow.test", 80, timeout=0.02)


async def test_there_are_no_unix_sockets() -> None:
    with pytest.raises(httpcore.UnsupportedProtocol):
        await CheckedNetwork(AddressRule(private=True).admits).connect_unix_socket("/run/docker.sock")
