"""Put a conversation into turns that alternate, each a list of blocks, as some of the wires want it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from app.core import json_text
from app.core.prompt import PromptMessage
from app.ports.provider import ModelEndpoint

Render = Callable[[PromptMessage], bytes]
"""Makes a message's blocks, as JSON without the brackets around them; empty for nothing."""


def turns(said: Iterable[PromptMessage], to: ModelEndpoint, plain: Render, whole: Render) -> Iterator[bytes]:
    """The turns as JSON; neighbours of one side become one, and a message without a block is none.

    `whole` is for messages that hold what the endpoint wants back.
    """
    spoken = []
    for message in said:
        own = message.opaque_for(to.provider, to.model)
        if blocks := message.rendered(whole if own else plain):
            spoken.append((message.role == "assistant", blocks))
    for is_model, turn in groupby(spoken, lambda one: one[0]):
        blocks = b",".join(blocks for _, blocks in turn)
        yield b'{"role":"%b","content":[%b]}' % (b"assistant" if is_model else b"user", blocks)


def written(blocks: Iterable[Mapping[str, Any]]) -> bytes:
    """Blocks as JSON, without the brackets around them."""
    # A copy to be kept: bytes as orjson gives them hold on to the whole buffer they were written in.
    return memoryview(json_text.dumps(list(blocks)))[1:-1].tobytes()
