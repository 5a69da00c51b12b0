"""Tools that are called over HTTP: a POST for each call, sent again only where that does nothing twice."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

from app.adapters.checked_network import CheckedNetwork
from app.adapters.signing import Signer
from app.adapters.tools.headers import NOT_CONFIGURED, Unsendable, secrets_in, sent_headers, sure_secrets_in
from app.adapters.tools.http_answers import HTTP_TOO_LARGE, MAX_BYTES, output_in
from app.adapters.tools.http_post import NOTHING, TIMEOUT, UNKNOWN, Post
from app.core.http_tool import HttpSettings, Miss, pause_ms
from app.core.json_text import dumps
from app.ports.credentials import Credentials
from app.ports.signing import NotSigned
from app.ports.tool import Invocation, ToolFailure, ToolSpec

HTTP_KIND: Final = "http"

IDLE_S: Final = 4.0
"""How long an unused connection is kept: less than the five seconds after which many servers close one, for a
call that meets its end is lost and may not be repeated."""
KEPT: Final = 64
"""Unused connections that are kept at most."""

_HEADERS: Final = {
    "user-agent": "branchline",
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "identity",
}


class HttpTools:
    """Calls tools over HTTP/1.1; a `ToolRunner`."""

    kind = HTTP_KIND

    def __init__(
        self,
        network: CheckedNetwork,
        exposed: Mapping[str, str | None],
        credentials: Credentials,
        signer: Signer,
        *,
        tls: ssl.SSLContext | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`exposed` are the variables that headers may name, None for those without a value.

        `draw` spreads the pauses between tries. Close it with `aclose()`.
        """
        self._exposed = exposed
        self._signer = signer
        self._draw = draw
        self._credentials = credentials
        # Without a limit: how many calls run at once is decided by whoever makes them, and a slow tool of one
        # project must not keep those of another waiting.
        self._pool = network.pool(idle_s=IDLE_S, most_idle=KEPT, tls=tls)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def call(self, spec: ToolSpec, invocation: Invocation) -> Any:
        """Post the call and return the JSON of the answer. Raises `ToolFailure`.

        A cancelled call closes its connection. Every try has the call's id as its `Idempotency-Key`.
        """
        http = HttpSettings.of(spec.settings)
        chosen = await self._chosen(http, invocation.project_id)
        call = _Call(spec, http, invocation, chosen, _body(invocation))
        try:
            async with asyncio.timeout(http.total_ms / 1000):
                return await self._tried(call)
        except TimeoutError:
            known = UNKNOWN if call.sent else NOTHING
            words = f"the answer did not end within {http.total_ms} ms{call.after()}; {known}"
            raise ToolFailure(TIMEOUT, words, retryable=None if call.sent else True) from None

    async def _tried(self, call: _Call) -> Any:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + call.http.total_ms / 1000
        while True:
            try:
                return await self._once(call)
            except ToolFailure as failure:
                call.failed(failure)
                pause = call.pause_ms(failure, self._draw)
                # A pause that the time does not suffice for would only make a worse failure of it.
                if pause is None or loop.time() + pause / 1000 >= ends_at:
                    raise call.failure() from None
            await asyncio.sleep(pause / 1000)

    async def _once(self, call: _Call) -> Any:
        post = call.next_post()
        try:
            signed = await self._signer.headers(
                call.http.signing, call.invocation.project_id, call.body, id=call.id
            )
        except NotSigned as error:
            raise ToolFailure(NOT_CONFIGURED, f"{error}; {NOTHING}", retryable=False) from None
        headers = {**_HEADERS, **call.headers, **signed, "idempotency-key": call.id}
        answer = await post.answer(self._pool, headers, call.body)
        sure = sure_secrets_in(call.headers, call.http.headers)
        return output_in(answer, hidden=secrets_in(call.headers), never=sure)

    async def _chosen(self, http: HttpSettings, project_id: UUID) -> dict[str, str]:
        """The tool's headers with their values, names in lower case, so that they replace ours."""
        try:
            return await sent_headers(
                http.headers, self._exposed, partial(self._credentials.secret, project_id)
            )
        except Unsendable as error:
            raise ToolFailure(error.type, str(error), retryable=error.retryable) from None


class _Call:
    """One call on its way, and what is known of its tries."""

    def __init__(
        self,
        spec: ToolSpec,
        http: HttpSettings,
        invocation: Invocation,
        headers: Mapping[str, str],
        body: bytes,
    ) -> None:
        self.http = http
        self.invocation = invocation
        self.headers = headers
        self.body = body
        self.id = str(invocation.call_id)
        self._idempotent = spec.idempotent
        self._tries = 0
        self._post = Post(http)
        self._last: ToolFailure | None = None
        self._reached: ToolFailure | None = None

    @property
    def sent(self) -> bool:
        """Whether any try may have reached the tool."""
        return self._post.sent or self._reached is not None

    def next_post(self) -> Post:
        """The request of the next try."""
        self._tries += 1
        self._post = Post(self.http)
        return self._post

    def failed(self, failure: ToolFailure) -> None:
        """Note how the try has ended."""
        self._last = failure
        if self._post.sent:
            self._reached = failure

    def pause_ms(self, failure: ToolFailure, draw: Callable[[], float]) -> float | None:
        """How long to wait before the next try; None when there is none."""
        miss = Miss(self._post.sent, failure.retryable is not False, self._post.retry_after_ms)
        return pause_ms(miss, self._tries, self.http, idempotent=self._idempotent, draw=draw)

    def failure(self) -> ToolFailure:
        """How the call has ended.

        That is how the last try did which may have reached the tool: that a later one was not sent says
        nothing of what the tool has done.
        """
        told = self._reached or self._last
        assert told is not None
        return ToolFailure(told.type, f"{told.message}{self.after()}", retryable=told.retryable)

    def after(self) -> str:
        """How many tries there were, for people; nothing of a single one."""
        return f" (after {self._tries} tries)" if self._tries > 1 else ""


def _body(invocation: Invocation) -> bytes:
    body = dumps(
        {
            "call_id": str(invocation.call_id),
            "function": invocation.function,
            "arguments": invocation.arguments,
            "run_id": str(invocation.run_id),
            "branch_id": str(invocation.branch_id),
            "project_id": str(invocation.project_id),
        }
    )
    if len(body) > MAX_BYTES:
        words = f"the request has more than {MAX_BYTES} bytes; {NOTHING}"
        raise ToolFailure(HTTP_TOO_LARGE, words, retryable=False)
    return body
