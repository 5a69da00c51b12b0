"""Reading a server's answer, with a socket that plays the server."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.embedded.locks import FileLock
from app.adapters.embedded.server import SOCKET, Answer, Server


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bl-") as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0", Answer.READY),
        (b"E\0\0\0\x40SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0", Answer.STARTING),
        (b"E\0\0\0\x40SFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0", Answer.READY),
        (b"", Answer.SILENT),
    ],
)
def test_the_answer_tells_the_state(folder: Path, reply: bytes, answer: Answer) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / SOCKET))
        listening.listen()

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                assert client.recv(100)[4:8] == b"\0\x03\0\0"
                client.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        assert Server(folder, folder, folder / "lock").answer() is answer
        thread.join()


def test_no_socket_is_silence(folder: Path) -> None:
    assert Server(folder, folder, folder / "lock").answer() is Answer.SILENT


def test_it_runs_as_long_as_the_lock_is_held(folder: Path) -> None:
    server = Server(folder, folder, folder / "lock")
    assert not server.runs()
    with FileLock(server.lock) as held:
        assert held.try_exclusive()
        assert server.runs()
    assert not server.runs()


@pytest.mark.parametrize("content", ["", "word\n", "999999999\n", "1\n"])
def test_an_id_that_is_not_the_servers_is_none(folder: Path, content: str) -> None:
    (folder / "postmaster.pid").write_text(content)
    assert Server(folder, folder, folder / "lock").pid() is None
