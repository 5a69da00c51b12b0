"""Branches over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from tests.support.api import Api

pytestmark = pytest.mark.anyio


async def test_a_branch_is_what_was_asked_for(api: Api) -> None:
    sent = {
        "name": "support",
        "system": "Be brief.",
        "chat_model": "local",
        "parse_model": None,
        "tools": ["add"],
        "lifecycle": {"timeout": {"total_ms": 60_000}, "retry": None},
        "metadata": {"customer": 12345678901234567890123, "ratio": 0.1, "nested": {"a": [1, None, "ü"]}},
    }
    answer = await api.client.post("/v1/branches", json=sent)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert {name: made[name] for name in sent} == sent
    assert (made["object"], made["version"], made["parent_id"]) == ("branch", 1, None)
    assert answer.headers["etag"] == '"1"'
    assert answer.headers["location"] == f"/v1/branches/{made['id']}"
    read = await api.client.get(answer.headers["location"])
    assert read.json() == made
    assert UUID(made["id"]).version == 7
    assert made["created_at"].endswith("Z")


async def test_an_empty_body_makes_a_branch_of_defaults(api: Api) -> None:
    made = await api.branch()
    assert (made["tools"], made["metadata"], made["system"], made["lifecycle"]) == (True, {}, None, None)


@pytest.mark.parametrize(
    ("body", "code", "pointers"),
    [
        ({"chat_model": "nobody"}, "unknown_model", ["/chat_model"]),
        ({"parse_model": "nobody"}, "unknown_model", ["/parse_model"]),
        (
            {"lifecycle": {"retry": {"should_retry": ""}}},
            "invalid_request",
            ["/lifecycle/retry/should_retry"],
        ),
        ({"lifecycle": {"fallbacks": ["local", "nobody"]}}, "unknown_model", ["/lifecycle/fallbacks/1"]),
        ({"tools": ["add", "subtract"]}, "unknown_tool", ["/tools/1"]),
        ({"nmae": "x"}, "invalid_request", ["/nmae"]),
        ({"name": ""}, "invalid_request", ["/name"]),
        ({"name": 5}, "invalid_request", ["/name"]),
        ({"tools": "add"}, "invalid_request", ["/tools", "/tools"]),
        ({"tools": [1]}, "invalid_request", ["/tools", "/tools/0"]),
        ({"metadata": []}, "invalid_request", ["/metadata"]),
        ({"metadata": {"big": "x" * 70_000}}, "invalid_request", ["/metadata"]),
        ({"lifecycle": {"timeout": {"total_ms": 0, "a/b": 1}}}, "invalid_request", None),
    ],
)
async def test_what_cannot_be_made_is_refused_with_pointers(
    api: Api, body: dict[str, Any], code: str, pointers: list[str] | None
) -> None:
    answer = await api.client.post("/v1/branches", json=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, code), problem
    found = [error["pointer"] for error in problem["errors"]]
    assert found == (pointers or ["/lifecycle/timeout/total_ms", "/lifecycle/timeout/a~1b"]), problem
    assert (await api.client.get("/v1/branches")).json()["data"] == []


async def test_a_change_touches_what_it_names(api: Api) -> None:
    made = await api.branch(name="a", chat_model="local", metadata={"x": 1, "y": {"z": 1, "w": 2}})
    url = f"/v1/branches/{made['id']}"
    answer = await api.client.patch(
        url, json={"name": "b", "chat_model": None, "metadata": {"x": None, "y": {"z": 3}}, "tools": False}
    )
    assert answer.status_code == 200, answer.text
    now = answer.json()
    assert now["metadata"] == {"y": {"z": 3, "w": 2}}
    assert (now["name"], now["chat_model"], now["tools"], now["version"]) == ("b", None, False, 2)
    assert answer.headers["etag"] == '"2"'
    cleared = (await api.client.patch(url, json={"metadata": None, "tools": None, "lifecycle": None})).json()
    assert (cleared["metadata"], cleared["tools"], cleared["name"]) == ({}, True, "b")


async def test_an_empty_change_is_no_new_version(api: Api) -> None:
    made = await api.branch()
    answer = await api.client.patch(f"/v1/branches/{made['id']}", json={})
    assert answer.json()["version"] == 1


async def test_a_lifecycle_is_replaced_whole_because_null_has_a_meaning_in_it(api: Api) -> None:
    made = await api.branch(lifecycle={"retry": {"attempts": 1}, "timeout": None})
    url = f"/v1/branches/{made['id']}"
    now = (await api.client.patch(url, json={"lifecycle": {"retry": None}})).json()
    assert now["lifecycle"] == {"retry": None}


@pytest.mark.parametrize(
    ("if_match", "status"),
    [('"1"', 200), ("*", 200), ('"2"', 412), ('W/"1"', 412), ("1", 412), ('"1", "2"', 412), ('""', 412)],
)
async def test_if_match_guards_changes(api: Api, if_match: str, status: int) -> None:
    made = await api.branch()
    url = f"/v1/branches/{made['id']}"
    answer = await api.client.patch(url, json={"name": "new"}, headers={"If-Match": if_match})
    assert answer.status_code == status, answer.text
    assert (await api.client.get(url)).json()["name"] == ("new" if status == 200 else None)


async def test_of_two_changes_of_one_version_one_wins(api: Api) -> None:
    made = await api.branch()
    url = f"/v1/branches/{made['id']}"
    answers = await asyncio.gather(
        *(api.client.patch(url, json={"name": name}, headers={"If-Match": '"1"'}) for name in "abcd")
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412]


async def test_changes_at_once_lose_nothing(api: Api) -> None:
    made = await api.branch()
    url = f"/v1/branches/{made['id']}"
    await asyncio.gather(*(api.client.patch(url, json={"metadata": {f"k{n}": n}}) for n in range(8)))
    now = (await api.client.get(url)).json()
    assert now["metadata"] == {f"k{n}": n for n in range(8)}
    assert now["version"] == 9


async def test_lists_are_paged_newest_first(api: Api) -> None:
    made = [(await api.branch(name=f"b{n}"))["id"] for n in range(5)]
    url, seen, links = "/v1/branches?limit=2", [], 0
    while url:
        answer = await api.client.get(url)
        page = answer.json()
        seen += [branch["id"] for branch in page["data"]]
        assert page["has_more"] == (page["next"] is not None) == ("link" in answer.headers)
        url = ""
        if page["has_more"]:
            links += 1
            target, _, relation = answer.headers["link"].partition(";")
            assert relation.strip() == 'rel="next"'
            url = target.strip("<>")
            assert "limit=2" in url
    assert seen == made[::-1]
    assert links == 2
    oldest = (await api.client.get("/v1/branches?order=asc&limit=3")).json()
    assert [branch["id"] for branch in oldest["data"]] == made[:3]


async def test_a_limit_that_is_too_large_is_cut(api: Api) -> None:
    await api.rows(
        "INSERT INTO branches (id, project_id) SELECT gen_random_uuid(), :home FROM generate_series(1, 1001)",
        home=api.home,
    )
    answer = await api.client.get("/v1/branches?limit=100000")
    assert answer.status_code == 200
    assert (len(answer.json()["data"]), answer.json()["has_more"]) == (1_000, True)


@pytest.mark.parametrize(
    ("query", "status", "code", "parameter"),
    [
        ("limit=0", 422, "invalid_request", "limit"),
        ("limit=-1", 422, "invalid_request", "limit"),
        ("limit=ten", 422, "invalid_request", "limit"),
        ("order=down", 422, "invalid_request", "order"),
        ("after=nonsense", 400, "invalid_cursor", "after"),
        ("lmit=5", 422, "invalid_request", ""),
        ("metadata={", 422, "invalid_request", ""),
        ("metadata=[]", 422, "invalid_request", ""),
        ("created_after=yesterday", 422, "invalid_request", "created_after"),
        ("created_after=1764547200", 422, "invalid_request", "created_after"),
        ("created_after=2026-01-01T00:00:00", 422, "invalid_request", "created_after"),
        ("name=%00", 400, "malformed_request", None),
    ],
)
async def test_bad_list_parameters(
    api: Api, query: str, status: int, code: str, parameter: str | None
) -> None:
    answer = await api.client.get(f"/v1/branches?{query}")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert [error.get("parameter") for error in problem["errors"]] == (
        [] if parameter is None else [parameter]
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"name": "one"}, ["one"]),
        ({"name": "nobody"}, []),
        ({"metadata": '{"tier": "gold"}'}, ["two", "one"]),
        ({"metadata": '{"tier": "gold", "n": 5}'}, ["one"]),
        ({"metadata.tier": "gold"}, ["two", "one"]),
        ({"metadata.n": "5"}, ["two", "one"]),
        ({"metadata.tier": "gold", "name": "two"}, ["two"]),
        ({"created_after": "2000-01-01T00:00:00Z"}, ["three", "two", "one"]),
        ({"created_before": "2000-01-01T00:00:00Z"}, []),
    ],
)
async def test_filters(api: Api, query: dict[str, str], found: list[str]) -> None:
    await api.branch(name="one", metadata={"tier": "gold", "n": 5})
    await api.branch(name="two", metadata={"tier": "gold", "n": "5"})
    await api.branch(name="three", metadata={"tier": "iron"})
    answer = await api.client.get("/v1/branches", params=query)
    assert answer.status_code == 200, answer.text
    assert [branch["name"] for branch in answer.json()["data"]] == found


async def test_a_deleted_branch_is_gone_with_all_that_hung_on_it(api: Api) -> None:
    made = await api.branch(system="Be brief.")
    other = await api.branch(system="Be long.")
    run = await _run(api, made["id"], "completed")
    kept = await _run(api, other["id"], "completed")
    answer = await api.client.delete(f"/v1/branches/{made['id']}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await api.client.get(f"/v1/branches/{made['id']}")).status_code == 404
    for table in ("events", "token_blocks"):
        assert await api.rows(f"SELECT run_id FROM {table}") == [{"run_id": kept}]
    assert await api.rows("SELECT id FROM runs") == [{"id": kept}]
    assert [row["branch_id"] for row in await api.rows("SELECT branch_id FROM messages")] == [
        UUID(other["id"])
    ]
    assert run != kept


@pytest.mark.parametrize("status", ["running", "waiting", "queued"])
async def test_a_busy_branch_is_not_deleted_nor_written_to(api: Api, status: str) -> None:
    made = await api.branch()
    await _run(api, made["id"], status)
    url = f"/v1/branches/{made['id']}"
    answer = await api.client.delete(url)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["retryable"]) == (409, "branch_busy", True)
    message = {"kind": "instruction", "content": {"instruction": "hi"}}
    answer = await api.client.post(f"{url}/messages", json={"messages": [message]})
    assert (answer.status_code, answer.json()["code"]) == (409, "branch_busy")
    assert (await api.client.get(url)).status_code == 200


async def _run(api: Api, branch_id: str, status: str) -> UUID:
    """A run's rows, as the run store leaves them."""
    run_id = api.services.ids.new()
    ended = "now()" if status == "completed" else "NULL"
    await api.rows(
        "INSERT INTO runs (id, project_id, branch_id, kind, status, request, created_at, ended_at) "
        f"VALUES (:id, :project, :branch, 'operate', :status, '{{}}', now(), {ended})",
        id=run_id,
        project=api.home,
        branch=UUID(branch_id),
        status=status,
    )
    await api.rows("INSERT INTO events (run_id, ts, seq, type) VALUES (:id, 1, 1, 1)", id=run_id)
    await api.rows(
        "INSERT INTO token_blocks (run_id, ts, seq, count, stream, attempt, fallback, text, lengths, delays) "
        "VALUES (:id, 1, 2, 1, 0, 1, 0, 'x', '', '')",
        id=run_id,
    )
    return run_id
