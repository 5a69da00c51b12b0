"""The conversation of a branch over HTTP: reading, appending, the system message, forks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
import pytest

from tests.support.api import Api

pytestmark = pytest.mark.anyio

QUESTION = {"kind": "instruction", "content": {"instruction": "Name a prime."}}
ANSWER = {"kind": "assistant_response", "content": {"text": "7"}, "sender": "a person"}


async def said(api: Api, branch_id: str, **query: Any) -> list[dict[str, Any]]:
    answer = await api.client.get(f"/v1/branches/{branch_id}/messages", params=query)
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


async def append(api: Api, branch_id: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await api.client.post(f"/v1/branches/{branch_id}/messages", json={"messages": messages})
    assert answer.status_code == 201, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


async def test_appended_messages_are_read_back_in_order(api: Api) -> None:
    branch = (await api.branch(system="Be brief."))["id"]
    appended = await append(api, branch, QUESTION, ANSWER)
    found = await said(api, branch)
    assert found[1:] == appended
    assert [(m["position"], m["kind"], m["role"], m["sender"], m["recipient"]) for m in found] == [
        (0, "system", "system", "system", branch),
        (1, "instruction", "user", "user", branch),
        (2, "assistant_response", "assistant", "a person", "user"),
    ]
    assert [m["content"] for m in found] == [
        {"text": "Be brief."},
        {
            "instruction": "Name a prime.",
            "guidance": None,
            "context": None,
            "images": [],
            "response_format": None,
        },
        {"text": "7", "value": None, "reasoning": None, "tool_calls": []},
    ]
    now = (await api.client.get(f"/v1/branches/{branch}")).json()
    assert now["version"] == 2
    assert (await api.rows("SELECT next_position FROM branches"))[0] == {"next_position": 3}


async def test_content_keeps_its_digits(api: Api) -> None:
    branch = (await api.branch())["id"]
    text = (
        '{"messages":[{"kind":"instruction","content":'
        '{"instruction":[123456789012345678901234567890,0.1,1e2,"\\u00e9\\ud83d\\ude00"]}}]}'
    )
    answer = await api.client.post(
        f"/v1/branches/{branch}/messages", content=text, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 201, answer.text
    assert (
        b'"instruction":[123456789012345678901234567890,0.1,100.0,"\xc3\xa9\xf0\x9f\x98\x80"]'
        in answer.content
    )


async def paging(api: Api, branch_id: str, **query: Any) -> dict[str, Any]:
    answer = await api.client.get(f"/v1/branches/{branch_id}/messages", params=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


async def test_the_conversation_is_paged_by_position(api: Api) -> None:
    branch = (await api.branch())["id"]
    await append(api, branch, *[QUESTION] * 5)
    first = await paging(api, branch, limit=2)
    assert [m["position"] for m in first["data"]] == [0, 1]
    second = await paging(api, branch, limit=2, after=first["next"])
    assert [m["position"] for m in second["data"]] == [2, 3]
    back = await paging(api, branch, limit=2, after=second["next"], order="desc")
    assert [m["position"] for m in back["data"]] == [2, 1]


async def test_whoever_pages_has_each_message_once_whatever_is_said_meanwhile(api: Api) -> None:
    branch = (await api.branch(system="Be brief."))["id"]
    await append(api, branch, *[QUESTION] * 499)
    seen: list[int] = []
    after: str | None = None
    while len(seen) < 500:
        page = await paging(api, branch, limit=70, **({"after": after} if after else {}))
        seen += [m["position"] for m in page["data"]]
        after = page["next"]
        await append(api, branch, ANSWER)
    assert seen[:500] == list(range(500))
    for limit, status in ((0, 422), (-1, 422), (1_000_000, 200)):
        answer = await api.client.get(f"/v1/branches/{branch}/messages", params={"limit": limit})
        assert answer.status_code == status


async def test_a_cursor_is_good_for_its_branch_alone_and_only_as_it_was_given(api: Api) -> None:
    branch, other = (await api.branch())["id"], (await api.branch())["id"]
    for one in (branch, other):
        await append(api, one, *[QUESTION] * 5)
    cursor = (await paging(api, branch, limit=3))["next"]
    assert [m["position"] for m in await said(api, branch, after=cursor)] == [3, 4]
    tampered = [cursor[:at] + chr(ord(cursor[at]) ^ 1) + cursor[at + 1 :] for at in range(len(cursor))]
    plain = ["x", "2", "1.0", " 1", "99999999999", "1e3", "-", "", cursor + "0", " " + cursor]
    for foreign, bad in [(other, cursor), *((branch, one) for one in (*tampered, *plain))]:
        answer = await api.client.get(f"/v1/branches/{foreign}/messages", params={"after": bad})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), bad


@pytest.mark.parametrize(
    ("message", "pointer", "code"),
    [
        ({"kind": "action_request", "content": {}}, "/messages/0", "invalid"),
        ({"content": {}}, "/messages/0", "invalid"),
        ({"kind": "system", "content": {}}, "/messages/0/content/text", "missing"),
        ({"kind": "system", "content": {"text": 1}}, "/messages/0/content/text", "wrong_type"),
        (
            {"kind": "instruction", "content": {"instuction": 1}},
            "/messages/0/content/instuction",
            "unknown_field",
        ),
        ({**ANSWER, "run_id": "x"}, "/messages/0/run_id", "unknown_field"),
        (
            {"kind": "assistant_response", "content": {"text": "", "tool_calls": [{}]}},
            "/messages/0/content/tool_calls",
            "unsupported_option",
        ),
        (
            {"kind": "assistant_response", "content": {"text": "", "opaque": {}}},
            "/messages/0/content/opaque",
            "unknown_field",
        ),
    ],
)
async def test_bad_messages_are_refused(api: Api, message: dict[str, Any], pointer: str, code: str) -> None:
    branch = (await api.branch())["id"]
    answer = await api.client.post(f"/v1/branches/{branch}/messages", json={"messages": [message]})
    errors = answer.json()["errors"]
    assert (answer.status_code, [(e["pointer"], e["code"]) for e in errors]) == (422, [(pointer, code)])
    assert await said(api, branch) == []


async def test_the_system_message_follows_the_system_text(api: Api) -> None:
    branch = (await api.branch(system="one"))["id"]
    first = (await said(api, branch))[0]
    await append(api, branch, QUESTION)
    await api.client.patch(f"/v1/branches/{branch}", json={"system": "two"})
    found = await said(api, branch)
    assert [(m["kind"], m["position"]) for m in found] == [("system", 0), ("instruction", 1)]
    assert (found[0]["id"], found[0]["content"]) == (first["id"], {"text": "two"})
    await api.client.patch(f"/v1/branches/{branch}", json={"system": None})
    assert [m["kind"] for m in await said(api, branch)] == ["instruction"]
    await api.client.patch(f"/v1/branches/{branch}", json={"system": "three"})
    assert [(m["kind"], m["position"]) for m in await said(api, branch)] == [
        ("system", -1),
        ("instruction", 1),
    ]
    await append(api, branch, ANSWER)
    assert [m["position"] for m in await said(api, branch)] == [-1, 1, 2]


async def test_a_system_text_given_before_anything_is_said_comes_first(api: Api) -> None:
    branch = (await api.branch())["id"]
    await api.client.patch(f"/v1/branches/{branch}", json={"system": "one"})
    await append(api, branch, QUESTION)
    assert [(m["kind"], m["position"]) for m in await said(api, branch)] == [
        ("system", 0),
        ("instruction", 1),
    ]


async def test_appending_a_system_message_sets_the_text(api: Api) -> None:
    branch = (await api.branch(system="one"))["id"]
    appended = await append(api, branch, QUESTION, {"kind": "system", "content": {"text": "two"}}, ANSWER)
    assert [m["kind"] for m in appended] == ["instruction", "system", "assistant_response"]
    assert (await api.client.get(f"/v1/branches/{branch}")).json()["system"] == "two"
    assert [m["kind"] for m in await said(api, branch)] == ["system", "instruction", "assistant_response"]


async def acted(api: Api, branch: str) -> list[UUID]:
    """Two action requests, then their responses the other way round: as a concurrent batch leaves them."""
    ids = [api.services.ids.new() for _ in range(4)]
    start = (await api.rows("SELECT next_position AS n FROM branches WHERE id = :id", id=UUID(branch)))[0][
        "n"
    ]
    rows = [
        (ids[0], "action_request", {"function": "add", "arguments": {"a": 1}}, None),
        (ids[1], "action_request", {"function": "add", "arguments": {"a": 2}}, None),
        (ids[2], "action_response", _response(ids[1]), ids[1]),
        (ids[3], "action_response", _response(ids[0]), ids[0]),
    ]
    for index, (id_, kind, content, request) in enumerate(rows):
        await api.rows(
            "INSERT INTO messages (id, project_id, branch_id, position, kind, sender, recipient, content, "
            "action_request_id, created_at) VALUES (:id, :project, :branch, :position, :kind, 'add', :to, "
            "CAST(CAST(:content AS text) AS json), :request, now())",
            id=id_,
            project=api.home,
            branch=UUID(branch),
            position=start + index,
            kind=kind,
            to=branch,
            content=orjson.dumps(content).decode(),
            request=request,
        )
    await api.rows("UPDATE branches SET next_position = next_position + 4 WHERE id = :id", id=UUID(branch))
    return ids


def _response(request: UUID) -> dict[str, Any]:
    return {
        "function": "add",
        "arguments": {},
        "output": {"action_request_id": str(request)},
        "action_request_id": str(request),
        "error": None,
    }


async def test_action_messages_show_their_link_on_both_ends(api: Api) -> None:
    branch = (await api.branch())["id"]
    ids = [str(id_) for id_ in await acted(api, branch)]
    found = await said(api, branch)
    assert [m["id"] for m in found] == ids
    assert found[0]["content"] == {"function": "add", "arguments": {"a": 1}, "action_response_id": ids[3]}
    assert found[1]["content"]["action_response_id"] == ids[2]
    assert found[2]["content"]["action_request_id"] == ids[1]
    assert [m["role"] for m in found] == ["action"] * 4


async def test_an_open_request_shows_no_response(api: Api) -> None:
    branch = (await api.branch())["id"]
    await acted(api, branch)
    await api.rows("DELETE FROM messages WHERE kind = 'action_response'")
    assert [m["content"]["action_response_id"] for m in await said(api, branch)] == [None, None]


async def fork(api: Api, branch: str, **body: Any) -> dict[str, Any]:
    answer = await api.client.post(f"/v1/branches/{branch}/fork", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/branches/{made['id']}"
    return made


async def test_a_fork_is_a_copy_that_goes_its_own_way(api: Api) -> None:
    parent = await api.branch(
        name="a",
        system="Be brief.",
        tools=["add"],
        metadata={"x": 1},
        chat_model="local",
        lifecycle={"retry": None},
    )
    await append(api, parent["id"], QUESTION, ANSWER)
    before = await said(api, parent["id"])
    made = await fork(api, parent["id"])
    same = ("name", "system", "tools", "metadata", "chat_model", "parse_model", "lifecycle")
    assert {name: made[name] for name in same} == {name: parent[name] for name in same}
    assert (made["parent_id"], made["forked_at"], made["version"]) == (parent["id"], before[-1]["id"], 1)
    copied = await said(api, made["id"])
    plain = ("position", "kind", "content", "run_id", "created_at")
    assert [[m[name] for name in plain] for m in copied] == [[m[name] for name in plain] for m in before]
    assert not {m["id"] for m in copied} & {m["id"] for m in before}
    assert [m["recipient"] for m in copied] == [made["id"], made["id"], "user"]
    await append(api, made["id"], QUESTION)
    assert len(await said(api, made["id"])) == 4
    assert await said(api, parent["id"]) == before
    assert (await api.client.delete(f"/v1/branches/{parent['id']}")).status_code == 204
    assert len(await said(api, made["id"])) == 4


async def test_a_fork_copies_up_to_a_message(api: Api) -> None:
    parent = (await api.branch(system="Be brief."))["id"]
    messages = await append(api, parent, QUESTION, ANSWER, QUESTION)
    made = await fork(api, parent, at_message=messages[1]["id"], name="other")
    assert (made["name"], made["forked_at"]) == ("other", messages[1]["id"])
    assert [m["kind"] for m in await said(api, made["id"])] == ["system", "instruction", "assistant_response"]


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        (0, []),
        (1, []),
        (2, [("action_request", {"a": 2}), ("action_response", {})]),
        (3, [("action_request", {"a": 1}), ("action_request", {"a": 2}), *[("action_response", {})] * 2]),
    ],
)
async def test_a_fork_copies_pairs_whole_or_not_at_all(
    api: Api, cut: int, kept: list[tuple[str, Any]]
) -> None:
    parent = (await api.branch())["id"]
    first = (await append(api, parent, QUESTION))[0]["id"]
    ids = [str(id_) for id_ in await acted(api, parent)]
    made = await fork(api, parent, at_message=ids[cut])
    copied = (await said(api, made["id"]))[1:]
    assert [(m["kind"], m["content"]["arguments"]) for m in copied] == kept
    assert made["forked_at"] == (ids[cut] if kept else first)
    by_id = {m["id"]: m for m in copied}
    for request in (m for m in copied if m["kind"] == "action_request"):
        response = by_id[request["content"]["action_response_id"]]
        assert response["content"]["action_request_id"] == request["id"]
        assert response["content"]["output"]["action_request_id"] in ids
    await append(api, made["id"], QUESTION)


async def test_a_fork_with_no_body_copies_everything(api: Api) -> None:
    parent = (await api.branch())["id"]
    await append(api, parent, QUESTION)
    answer = await api.client.post(f"/v1/branches/{parent}/fork")
    assert answer.status_code == 201
    assert len(await said(api, answer.json()["id"])) == 1


async def test_a_fork_at_a_message_of_another_branch_is_refused(api: Api) -> None:
    parent, other = (await api.branch())["id"], (await api.branch())["id"]
    message = (await append(api, other, QUESTION))[0]["id"]
    answer = await api.client.post(f"/v1/branches/{parent}/fork", json={"at_message": message})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/at_message")
    answer = await api.client.post(f"/v1/branches/{parent}/fork", json={"at_message": "m1"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/at_message")
    assert len((await api.client.get("/v1/branches")).json()["data"]) == 2
