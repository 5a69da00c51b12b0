"""The flaky servers of a world: one of models and one of tools, and what they were asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.support.model_server import ModelServer
from tests.system.chaos.flaky import CHARGE, ERRAND, LOOK, PATIENCE_MS, FlakyModel, FlakyTools

MODEL = "flaky"
LIFECYCLE: dict[str, Any] = {
    "timeout": {"initial_token_ms": PATIENCE_MS, "inter_token_ms": PATIENCE_MS},
    "retry": {"attempts": 4, "max_retries": 6, "base_delay_ms": 50, "max_delay_ms": 500},
}


class Servers:
    """See the module's words."""

    def __init__(self) -> None:
        self.model = FlakyModel("")
        self.tools = FlakyTools("")
        self.models_heard = ModelServer(choose=lambda request: self.model(request))
        self.tools_heard = ModelServer(choose=lambda request: self.tools(request))

    def begin(self, seed: str) -> None:
        """Forget what was asked, and be flaky by another seed."""
        self.model, self.tools = FlakyModel(seed), FlakyTools(seed)
        self.models_heard.requests.clear()
        self.tools_heard.requests.clear()

    async def furnish(self, url: str) -> None:
        """Register the model and the tools with a service."""
        spec = {"provider": "openai", "model": MODEL, "base_url": self.models_heard.base_url}
        tool = {
            "kind": "http",
            "parameters": {"type": "object"},
            "http": {"url": self.tools_heard.base_url, "timeout_ms": {"first_byte": PATIENCE_MS}},
        }
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
            for path, body in (
                (f"models/{MODEL}", {**spec, "lifecycle": LIFECYCLE}),
                (f"tools/{CHARGE}", tool),
                (f"tools/{LOOK}", {**tool, "idempotent": True}),
                (f"tools/{ERRAND}", {"kind": "client", "parameters": {"type": "object"}}),
            ):
                answer = await http.put(f"/v1/{path}", json=body)
                assert answer.status_code == 201, answer.text


@asynccontextmanager
async def flaky_servers() -> AsyncIterator[Servers]:
    """Both of them, for the block."""
    made = Servers()
    async with made.models_heard, made.tools_heard:
        yield made
