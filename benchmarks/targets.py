"""What is put under load. One class each, so that a peer can be measured beside."""

from __future__ import annotations

from collections import deque
from typing import Protocol
from uuid import uuid4

from benchmarks.client import Address, Answer, LoadFailed, load, request

CLIENTS = 32
"""Simulated clients wherever there are many."""


class Target(Protocol):
    """A server that can be asked for an answer of a fake model."""

    name: str
    """Begins the names of its figures."""
    address: Address
    mark: bytes
    """What each token event of a streamed answer holds exactly once."""

    async def prepare(self, count: int, model: str) -> None:
        """Make ready for `count` questions to a model, so that nothing but they is timed."""

    def question(self, model: str, *, stream: bool) -> bytes:
        """The next question as the bytes of a request; each of them is on a conversation of its own."""

    def check(self, answer: Answer, *, tokens: int, stream: bool) -> None:
        """Raise LoadFailed unless the answer is whole."""


class Direct:
    """The fake model itself: the floor under everything that has to ask it."""

    name = "direct"
    mark = b'"content":"tok'

    def __init__(self, address: Address) -> None:
        self.address = address

    async def prepare(self, count: int, model: str) -> None:
        """Nothing is needed."""

    def question(self, model: str, *, stream: bool) -> bytes:
        """Always streamed, as whoever stands between asks it too."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        return request(self.address, "POST", "/v1/chat/completions", body)

    def check(self, answer: Answer, *, tokens: int, stream: bool) -> None:
        """All tokens came."""
        _expect(answer, answer.body.count(self.mark), tokens)


class Branchline:
    """The service, in development mode on the loopback."""

    name = "branchline"
    mark = b"\nevent: TOKEN\n"

    def __init__(self, address: Address, fake: Address) -> None:
        """`fake` is where its models are."""
        self.address = address
        self._fake = fake
        self._models: set[str] = set()
        self._branches: deque[str] = deque()

    async def prepare(self, count: int, model: str | None = None) -> None:
        """Register the model, if one is named, and make a fresh branch for each question."""
        if model is not None:
            await self.register(model, self._fake)
        asked = [request(self.address, "POST", "/v1/branches", {}) for _ in range(count)]
        made = await load(self.address, asked, clients=min(count, CLIENTS))
        self._branches.extend(answer.json()["id"] for answer in made.answers)

    async def register(self, model: str, server: Address) -> None:
        """Have a model that is asked at a server, unless there is one of the name."""
        if model in self._models:
            return
        body = {
            "provider": "openai",
            "model": model,
            "base_url": f"http://{server[0]}:{server[1]}/v1",
        }
        # Another process of the service may have it already.
        put = request(self.address, "PUT", f"/v1/models/{model}", body)
        asked = await load(self.address, [put], clients=1)
        asked.answers[0].json()
        self._models.add(model)

    def branch(self) -> str:
        """The id of a branch that was prepared and has not been used."""
        return self._branches.popleft()

    def question(self, model: str, *, stream: bool) -> bytes:
        """An operate that gives the text of the answer."""
        accept = "text/event-stream" if stream else "application/json"
        body = {"instruction": "hi", "chat_model": model}
        return request(self.address, "POST", f"/v1/branches/{self.branch()}/operate", body, accept=accept)

    def operate_with_action(self, branch: str, model: str) -> bytes:
        """An operate whose model asks for a tool call."""
        body = {"instruction": "hi", "chat_model": model, "actions": True}
        return request(self.address, "POST", f"/v1/branches/{branch}/operate", body)

    def act(self, calls: int, *, keyed: bool = False) -> bytes:
        """Calls of the trivial tool of `benchmarks.tools`; `keyed` with an Idempotency-Key of their own."""
        body = {"requests": [{"function": "bench_add", "arguments": {"a": n, "b": 1}} for n in range(calls)]}
        return request(
            self.address, "POST", f"/v1/branches/{self.branch()}/act", body, key=uuid4().hex if keyed else ""
        )

    def check(self, answer: Answer, *, tokens: int, stream: bool) -> None:
        """The run completed, with all tokens."""
        if stream:
            _expect(answer, answer.body.count(self.mark), tokens)
            _expect(answer, answer.body.count(b"\nevent: RUN_COMPLETED\n"), 1)
        else:
            self.check_run(answer)
            _expect(answer, answer.json()["result"].count("tok"), tokens)

    def check_run(self, answer: Answer) -> None:
        """The run completed."""
        run = answer.json()
        if run["status"] != "completed":
            raise LoadFailed(f"the run is {run['status']}: {run['error']}")


def _expect(answer: Answer, found: int, expected: int) -> None:
    if answer.status != 200 or found != expected:
        said = answer.body[-500:].decode("utf-8", "replace")
        raise LoadFailed(f"status {answer.status}, {found} instead of {expected}; the end: {said}")
