"""Whatever a model server sends as its answer, the run ends, and so does the next one on its branch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.support.fuzzed_runs import ends_well, nothing_breaks
from tests.support.fuzzed_streams import WIRES, bodies
from tests.support.fuzzing import bounded, marks
from tests.support.heard import served
from tests.support.model_server import Attempt, Framing, ModelServer, Then
from tests.support.service import Service

pytestmark = [pytest.mark.anyio, *marks]

LIFECYCLE: dict[str, Any] = {
    "retry": {"attempts": 1, "max_retries": 1, "base_delay_ms": 0},
    "timeout": {"initial_token_ms": 400, "inter_token_ms": 400, "total_ms": 8_000},
    "max_model_calls": 4,
}
PATIENT: dict[str, Any] = {"retry": None, "timeout": {"initial_token_ms": 30_000, "inter_token_ms": 30_000}}
"""For what has to succeed, on a busy machine too."""
SHAPE: dict[str, Any] = {"type": "object", "properties": {"one": {"type": "string"}}, "required": ["one"]}
WANTED: list[dict[str, Any]] = [
    {},
    {"actions": True, "tools": ["add", "echo"]},
    {"response_format": SHAPE},
    {"response_format": SHAPE, "actions": True, "tools": ["add", "echo"], "reason": True},
    {"skip_validation": True},
]
"""What a client may want of the answer."""

statuses = st.just(200) | st.sampled_from(
    [200, 201, 204, 206, 302, 304, 400, 401, 408, 413, 429, 500, 529, 999]
)
content_types = st.none() | st.sampled_from(
    [
        "text/event-stream",
        "text/event-stream; charset=latin-1",
        "application/json",
        "application/vnd.amazon.eventstream",
        "text/html",
        "application/x-ndjson",
        ";;=",
        "\xff",
    ]
)
headers = st.dictionaries(
    st.sampled_from(
        ["Retry-After", "retry-after-ms", "x-amzn-errortype", "Content-Encoding", "x-should-retry"]
    ),
    st.sampled_from(
        ["1", "-1", "0.01", "1e400", "nan", "Wed, 21 Oct 2015 07:28:00 GMT", "gzip", "\xff", "9" * 400]
    ),
    max_size=2,
)
heads = st.none() | st.just(None) | st.just(None) | st.binary(max_size=60)


@st.composite
def attempts(draw: st.DrawFn, wire: str) -> Attempt:
    """One answer, of any kind."""
    body = draw(bodies(WIRES[wire]))
    if draw(st.integers(0, 3)):
        return Attempt(
            [body], content_type=WIRES[wire].content_type, write_size=draw(st.sampled_from([None, 1, 7, 100]))
        )
    framing: Framing = draw(st.sampled_from(["eof", "chunked", "length"]))
    then: Then = draw(st.sampled_from(["close", "close", "reset", "hang", "keep"]))
    return Attempt(
        [body],
        status=draw(statuses),
        content_type=draw(content_types),
        headers=draw(headers),
        # On a connection that stays, nothing would tell the end of such a body.
        then="close" if (framing, then) == ("eof", "keep") else then,
        framing=framing,
        cut=draw(st.booleans()),
        head=draw(heads),
        write_size=draw(st.sampled_from([None, 100])),
    )


async def told(service: Service, server: ModelServer, wire: str, attempt: Attempt, wanted: Any) -> None:
    """A run that is told this, and the next one of its branch."""
    note(f"{attempt} {wanted}")
    good = WIRES[wire].good
    model = await served(service, server, [attempt, good], provider=wire)
    branch = await service.branch(chat_model=model)
    with nothing_breaks():
        await ends_well(service, await service.operate(branch, lifecycle=LIFECYCLE, **wanted))
        server.scripts[model] = [good]
        after = await service.operate(branch, lifecycle=PATIENT)
        assert (after["status"], after["result"]) == ("completed", "fine")


@bounded
@given(attempt=attempts("openai"), wanted=st.sampled_from(WANTED))
async def test_chat_completions(
    service: Service, model_server: ModelServer, attempt: Attempt, wanted: dict[str, Any]
) -> None:
    await told(service, model_server, "openai", attempt, wanted)


@bounded
@given(attempt=attempts("anthropic"), wanted=st.sampled_from(WANTED))
async def test_messages(
    service: Service, model_server: ModelServer, attempt: Attempt, wanted: dict[str, Any]
) -> None:
    await told(service, model_server, "anthropic", attempt, wanted)


@bounded
@given(attempt=attempts("gemini"), wanted=st.sampled_from(WANTED))
async def test_generate_content(
    service: Service, model_server: ModelServer, attempt: Attempt, wanted: dict[str, Any]
) -> None:
    await told(service, model_server, "gemini", attempt, wanted)


@bounded
@given(attempt=attempts("bedrock"), wanted=st.sampled_from(WANTED))
async def test_converse_stream(
    service: Service, model_server: ModelServer, attempt: Attempt, wanted: dict[str, Any]
) -> None:
    await told(service, model_server, "bedrock", attempt, wanted)
