"""What the Gemini API wants back of an answer: gathered from the stream, and put into the next request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.adapters.gemini_content.answer import AnswerReader
from app.adapters.gemini_content.parts import NO_SIGNATURE
from app.adapters.gemini_content.profile import profile_of
from app.adapters.gemini_content.request import body_of
from app.core.chunks import Chunk, OpaqueBlocks, TextDelta, ToolCallDelta
from app.core.opaque import Opaque
from app.core.prompt import Prompt, PromptMessage, PromptToolCall
from tests.support import gemini_wire
from tests.support.answers import opening

CALL = {"functionCall": {"name": "add", "args": {"x": 1}}}
OTHER = {"functionCall": {"name": "now", "args": {}}}
CODE = {"executableCode": {"language": "PYTHON", "code": "print(6 * 7)"}}
RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42"}}


def signed(part: dict[str, Any], signature: str = "c2ln") -> dict[str, Any]:
    return {**part, "thoughtSignature": signature}


def read(*events: list[dict[str, Any]], finish: str = "STOP") -> list[Chunk]:
    reader = AnswerReader(1 << 20)
    body = b"".join(gemini_wire.said(*parts) for parts in events) + gemini_wire.said(finish=finish)
    return [*reader.feed(body), *reader.finish()]


def given_back(chunks: list[Chunk], model: str = "gemini-3-pro") -> list[Any]:
    """The parts of the answer in the next request."""
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))
    calls = [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    blocks = [block for chunk in chunks if isinstance(chunk, OpaqueBlocks) for block in chunk.blocks]
    answer = PromptMessage(
        "assistant",
        text,
        tool_calls=[PromptToolCall(str(c.index), c.name or "", json.loads(c.arguments)) for c in calls],
        opaque=Opaque("gemini", "gemini-3-pro", blocks) if blocks else None,
    )
    what = opening("gemini", model, prompt=Prompt([PromptMessage("user", "hi"), answer]))
    sent: list[Any] = json.loads(body_of(what, profile_of(what.endpoint)))["contents"][1]["parts"]
    return sent


@pytest.mark.parametrize(
    "parts",
    [
        [signed(CALL), OTHER],
        [{"text": "So: "}, signed(CALL)],
        [signed({"text": "So."})],
        [{"text": "So"}, signed({"text": ""})],
        [{"text": "See: "}, CODE, signed(RESULT), {"text": "42"}],
        [{"text": "a"}, signed({"text": "bc"}), signed({"text": "d"}, "b3RoZXI="), {"text": "e"}],
        [signed({"thought": True, "text": "Hm."}), {"text": "So."}],
    ],
)
def test_every_part_comes_back_as_it_was(parts: list[dict[str, Any]]) -> None:
    assert given_back(read(*[[part] for part in parts])) == parts
    assert given_back(read(parts)) == parts


def test_thoughts_that_are_not_signed_and_output_that_is_large_are_not_wanted_back() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    chunks = read([{"thought": True, "text": "Hm."}, image, {"text": "So."}])
    assert not any(isinstance(chunk, OpaqueBlocks) for chunk in chunks)


def test_a_plain_answer_pays_nothing_and_is_merged_as_ever() -> None:
    assert given_back(read([{"text": "a"}], [{"text": "b"}])) == [{"text": "ab"}]


def test_another_model_gets_the_word_for_a_lost_signature() -> None:
    chunks = read([signed(CALL)])
    assert given_back(chunks, "gemini-3-flash") == [signed(CALL, NO_SIGNATURE)]
    assert given_back(chunks, "gemini-2.5-pro") == [CALL]


def test_too_much_of_it_is_left_out() -> None:
    chunks = read([signed(CALL, "x" * 600_000)])
    assert not any(isinstance(chunk, OpaqueBlocks) for chunk in chunks)
