"""Ask gates over HTTP: one POST, one short answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from app.adapters.outbound import Outbound
from app.adapters.signing import Signer
from app.core.governance.decision import MAX_REASON, Effect
from app.core.governance.remote import Remote
from app.core.json_text import NotJson, dumps, read
from app.ports.governance import GateAnswer, GateFailed
from app.ports.signing import NotSigned

_EFFECTS: Final[Mapping[str, Effect]] = {"allow": "allow", "deny": "deny", "escalate": "escalate"}


class HttpGates:
    """`ports.governance.GateClient`."""

    def __init__(self, outbound: Outbound, signer: Signer) -> None:
        """`outbound` bounds every question by its own time limit too."""
        self._outbound = outbound
        self._signer = signer

    async def ask(self, gate: Remote, question: Mapping[str, Any], *, project_id: UUID) -> GateAnswer:
        """See the port."""
        try:
            async with asyncio.timeout(gate.timeout_ms / 1000):
                body = dumps(question)
                signed = await self._signer.headers(gate.signing, project_id, body)
                reply = await self._outbound.post(gate.url, signed, body)
        except TimeoutError:
            raise GateFailed(f"it gave no answer within {gate.timeout_ms} ms") from None
        except (NotJson, NotSigned) as error:
            raise GateFailed(f"it cannot be asked: {error}") from None
        if reply.error is not None:
            raise GateFailed(reply.error)
        return _answer(reply.body)


def _answer(body: bytes) -> GateAnswer:
    """`{"effect", "reason"?}`; further members are for later versions."""
    try:
        said = read(body)
    except NotJson as error:
        raise GateFailed(f"its answer is too long, or no JSON: {error}") from None
    effect = said.get("effect") if isinstance(said, dict) else None
    if not isinstance(effect, str) or effect not in _EFFECTS:
        raise GateFailed("its answer has no `effect` of allow, deny or escalate")
    reason = said.get("reason")
    if reason is not None and not isinstance(reason, str):
        raise GateFailed("the `reason` in its answer is no text")
    return GateAnswer(_EFFECTS[effect], reason[:MAX_REASON] if reason else None)
