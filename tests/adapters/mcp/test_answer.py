"""What becomes of the result of a call."""

from __future__ import annotations

from typing import Any

import pytest

from app.adapters.mcp.answer import NOTHING, Answer, output_in
from app.ports.tool import ToolFailure

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}
TEXT = {"type": "text", "text": "a\u2028b"}
IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


@pytest.mark.parametrize(
    ("content", "structured", "schema", "output"),
    [
        ([], NOTHING, None, None),
        ([TEXT], NOTHING, None, "a\u2028b"),
        ([{"type": "text", "text": '{"n": 1}'}], NOTHING, None, '{"n": 1}'),
        ([TEXT, TEXT], NOTHING, None, [TEXT, TEXT]),
        ([IMAGE], NOTHING, None, [IMAGE]),
        ([TEXT, LINK], NOTHING, None, [TEXT, LINK]),
        ([TEXT], {"n": 1}, None, {"n": 1}),
        ([TEXT], {"n": 2**70}, NUMBER, {"n": 2**70}),
        ([TEXT], None, None, None),
        ([], False, {"type": "boolean"}, False),
    ],
)
def test_what_the_output_is(content: list[Any], structured: Any, schema: Any, output: Any) -> None:
    assert output_in(Answer(content, structured), schema) == output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"type": "text", "text": "no such id"}], "no such id"),
        ([{"type": "text", "text": "one"}, IMAGE, {"type": "text", "text": "two"}], "one\ntwo"),
        ([IMAGE], "the tool failed without a word"),
        ([{"type": "text", "text": "x" * 5_000}], "x" * 2_000),
    ],
)
def test_an_error_is_a_failure_in_the_tools_words(content: list[Any], words: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        output_in(Answer(content, {"n": "never looked at"}, is_error=True), NUMBER)
    assert (caught.value.type, caught.value.message, caught.value.retryable) == (
        "MCP_TOOL_ERROR",
        words,
        None,
    )


@pytest.mark.parametrize(
    ("structured", "words"),
    [({"n": "x"}, "/n: "), ([], "(value): "), (NOTHING, "gave no structuredContent")],
)
def test_structured_content_that_does_not_fit_is_no_output(structured: Any, words: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        output_in(Answer([TEXT], structured), NUMBER)
    assert (caught.value.type, caught.value.retryable) == ("INVALID_RESPONSE", False)
    assert words in caught.value.message
