"""How the servers that speak chat completions differ, as data: what options stand for the name of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

ServerName = Literal[
    "openai",
    "azure",
    "deepseek",
    "groq",
    "llama.cpp",
    "lm-studio",
    "mistral",
    "ollama",
    "openrouter",
    "together",
    "vllm",
]


@dataclass(frozen=True, slots=True)
class Server:
    """One server."""

    base_url: str | None
    """Where it is unless the model says otherwise; None where that is for the model to say."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `Profile`; those that the model has itself go before them."""
    why: str = ""
    """What makes them necessary, for readers."""


SERVERS: Final[Mapping[str, Server]] = {
    "openai": Server(
        "https://api.openai.com/v1",
        {"max_tokens_field": "max_completion_tokens"},
        "Reasoning models refuse `max_tokens`.",
    ),
    "azure": Server(
        None,
        {"api_key_header": "api-key"},
        "`base_url` ends in `/openai/v1`, or in `/openai/deployments/NAME?api-version=…`.",
    ),
    "deepseek": Server(
        "https://api.deepseek.com/v1",
        {"native_schema": False, "reasoning_back": "reasoning_content"},
        "It takes no JSON Schema. A turn with tool calls is refused without its reasoning; none else has it.",
    ),
    "groq": Server(
        "https://api.groq.com/openai/v1",
        {"native_schema": False},
        "Most of its models take no JSON Schema. Usage inside `x_groq` is read everywhere.",
    ),
    "llama.cpp": Server(
        None,
        {"schema_profile": "llama.cpp"},
        "Its grammar takes a part of JSON Schema.",
    ),
    "lm-studio": Server(None),
    "mistral": Server(
        "https://api.mistral.ai/v1",
        {"include_usage": False, "call_ids": "nine"},
        "It refuses `stream_options`, and tells usage unasked. Ids of calls have nine letters and digits.",
    ),
    "ollama": Server(None),
    "openrouter": Server(
        "https://openrouter.ai/api/v1",
        {"reasoning_back": "reasoning_details"},
        "Signed thoughts of the models behind it come as `reasoning_details`, and are wanted back.",
    ),
    "together": Server("https://api.together.xyz/v1"),
    "vllm": Server(None),
}
"""All that are known; none of it is needed for a server that does what the wire promises."""


def server_of(options: Mapping[str, Any]) -> Server:
    """The server that options name; one without options where they name none, or none that is known."""
    name = options.get("server")
    return SERVERS.get(name, _UNNAMED) if isinstance(name, str) else _UNNAMED


_UNNAMED: Final = Server("https://api.openai.com/v1")
