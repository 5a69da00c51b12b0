"""Secrets of every kind, used by all that uses them, against servers that send them back: none is seen."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from tests.support.echo import EchoServer
from tests.support.polling import until_true
from tests.support.service import Service, running

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

STORED = 'st-9q/Wz+"Kd7=Lm2xVb8^Rt5Yp3'
AFTER = 'af-Gh4/Nc+"Sj6=Qw1eZu9^Ox8Il0'
"""The stored one after its replacement."""
VARIABLE = "va-Pf6/Tb+Xk2=Hy9mCs4jGd1Ev7"
TOOL_HEADER = "th-Jn8/Lr+Uz5=Aw3qOi6yBt0Fk"
MODEL_HEADER = "mh-Vx1/Ed+Rc7=Mp4gNs2hKu9Tz"
PIECE = 12
"""Characters in a row that would be too many to be seen."""

WIRES = {"openai": "/v1", "anthropic": "", "gemini": ""}
MANNERS = ("refuse", "cut", "words", "stream", "nonsense")


def pieces_of(secret: str) -> Iterator[str]:
    """What must be seen nowhere: pieces of the secret and of its encodings."""
    escaped = json.dumps(secret)[1:-1]
    # JSON may be in a text that is in JSON.
    forms = [secret, escaped, json.dumps(escaped)[1:-1], quote(secret, safe="")]
    for before in range(3):
        text = base64.b64encode(b"\0" * before + secret.encode()).decode().rstrip("=")[4 * bool(before) : -1]
        forms += (text, text.replace("+", "-").replace("/", "_"))
    for form in forms:
        yield from windows(form)


def windows(text: str) -> Iterator[str]:
    return (text[at : at + PIECE] for at in range(len(text) - PIECE + 1))


def assert_unseen(secrets: list[str], where: str, text: str) -> None:
    there = set(windows(text))
    for secret in secrets:
        seen = there.intersection(pieces_of(secret))
        assert not seen, f"pieces of {secret[:2]}… are seen in {where}: {sorted(seen)[:5]}"


class World:
    """A service in which everything that can have a secret has one, and has used it."""

    def __init__(self, service: Service, echo: EchoServer) -> None:
        self.service = service
        self.echo = echo
        self.secrets = [STORED, AFTER, VARIABLE, TOOL_HEADER, MODEL_HEADER]
        self.ids: dict[str, list[str]] = {}
        self.answers: list[tuple[str, str]] = []

    async def ask(self, method: str, path: str, body: Any = None, status: int | None = None) -> Any:
        """Send a request, and keep the answer for later."""
        answer = await self.service.http.request(method, path, json=body)
        self.answers.append((f"{method} {path}", answer.text))
        if status is None:
            assert answer.status_code < 300, answer.text
        else:
            assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def furnish(self) -> None:
        await self.ask("PUT", "/v1/credentials/stored", {"secret": STORED})
        for wire, manner in itertools.product(WIRES, MANNERS):
            await self.register(f"{wire}-{manner}", wire, manner, {"credential": "stored"})
        await self.register("variable", "openai", "refuse", {"api_key_env": "MARKED_VARIABLE"})
        for manner in ("refuse", "words", "nonsense", "output"):
            headers = {
                "Authorization": f"Bearer {TOOL_HEADER}",
                "X-Variable": "env:MARKED_VARIABLE",
                "X-Stored": "credential:stored",
            }
            http = {"url": self.echo.url(f"/{manner}"), "headers": headers}
            body = {"kind": "http", "parameters": {"type": "object"}, "http": http}
            await self.ask("PUT", f"/v1/tools/echo_{manner}", body)
        for manner in MANNERS:
            server = {"url": self.echo.url(f"/{manner}"), "headers": headers}
            await self.ask("PUT", f"/v1/mcp-servers/{manner}", server)
        for manner in ("take", "words"):
            made = await self.ask("POST", "/v1/webhook-endpoints", {"url": self.echo.url(f"/{manner}")})
            rotated = await self.ask("POST", f"/v1/webhook-endpoints/{made['id']}/rotate-secret")
            self.ids.setdefault("endpoint_id", []).append(made["id"])
            for text in (made["secret"], rotated["secret"]):  # told this once, to its owner
                self.secrets.append(text.removeprefix("whsec_"))
        self.answers = [(where, text) for where, text in self.answers if "webhook" not in where]

    async def register(self, name: str, wire: str, manner: str, key: dict[str, str]) -> None:
        options = {"headers": {"X-Written": MODEL_HEADER, "X-Stored": "credential:stored"}}
        spec = {"provider": wire, "model": "m", "base_url": self.echo.url(f"/{manner}{WIRES[wire]}")}
        await self.ask("PUT", f"/v1/models/{name}", {**spec, **key, "options": options})

    async def use(self) -> None:
        """Run everything once."""
        names = [model["name"] for model in (await self.ask("GET", "/v1/models"))["data"]]
        branches, runs = [], []
        for name in names:
            branch = await self.service.branch(chat_model=name)
            run = await self.service.operate(branch, lifecycle={"retry": {"attempts": 0, "max_retries": 0}})
            assert run["status"] == "failed"
            branches.append(branch)
            runs.append(run)
        tools = [tool["name"] for tool in (await self.ask("GET", "/v1/tools"))["data"] if tool["http"]]
        requests = [{"function": name, "arguments": {}} for name in tools]
        run = await self.service.act(branches[0], *requests)
        ends = {result["function"]: result["error"] for result in run["result"]}
        assert ends["echo_output"] is None
        assert all(ends[name] for name in tools if name != "echo_output")
        self.answers += [("the run", json.dumps(each)) for each in (*runs, run)]
        self.ids |= {"run_id": [each["id"] for each in (*runs, run)], "branch_id": branches}
        await self.ask("PUT", "/v1/credentials/stored", {"secret": AFTER})
        again = await self.service.operate(
            branches[0], lifecycle={"retry": {"attempts": 0, "max_retries": 0}}
        )
        assert any(AFTER in str(headers) for _, headers, _ in self.echo.received)
        self.ids["run_id"].append(again["id"])

    async def fail(self) -> None:
        """Requests that are refused."""
        secret = {"kind": "token", "secret": STORED}
        named = {"provider": "openai", "model": "m"}
        tool = {"kind": "http", "parameters": {"type": "object"}}
        for path, body in (
            ("credentials/x", {**secret, "secret": f"{STORED}\n"}),
            ("credentials/x", {**secret, "secret": [STORED]}),
            ("credentials/x", {**secret, "kind": "signing_secret"}),
            ("credentials/x", {**secret, "more": STORED}),
            ("models/x", {**named, "api_key": STORED}),
            ("models/x", {**named, "options": {"headers": {"X": f"{STORED}\n"}}}),
            ("models/x", {**named, "options": {"headers": {"X": [STORED]}}}),
            ("models/x", {**named, "base_url": f"https://user:{quote(STORED)}@models.example"}),
            ("tools/x", {**tool, "http": {"url": "https://t.example", "headers": {"X": f"{STORED}\r\n"}}}),
            ("tools/x", {**tool, "http": {"url": f"https://u:{quote(STORED)}@t.example"}}),
        ):
            await self.ask("PUT", f"/v1/{path}", body, status=422)
        await self.ask("DELETE", "/v1/credentials/stored", status=409)
        text = f'{{"secret": "{STORED}"}}'
        json_type = {"Content-Type": "application/json"}
        answer = await self.service.http.put("/v1/credentials/x", content=text, headers=json_type)
        assert answer.status_code == 400
        self.answers.append(("broken JSON", answer.text))

    async def read(self) -> None:
        """GET every address of the API, with every id that there is."""
        document = await self.ask("GET", "/openapi.json")
        call = (await self.ask("GET", "/v1/function-calls"))["data"][0]
        project = (await self.ask("GET", "/v1/projects"))["data"][0]
        key = await self.ask("POST", f"/v1/projects/{project['id']}/keys", {"name": "k", "scopes": ["read"]})
        messages = await self.service.messages(self.ids["branch_id"][0])
        known = {**self.ids, "project_id": [project["id"]], "message_id": [messages[0]["id"]]}
        known |= {"call_id": [call["id"]], "function_call_id": [call["id"]], "code": ["not_found"]}
        known["key_id"] = [key["id"]]
        for path, item in document["paths"].items():
            if "get" not in item:
                continue
            names = re.findall(r"\{(\w+)\}", path)
            lists = [await self.named(path) if name == "name" else known.get(name, []) for name in names]
            for values in itertools.product(*lists):
                filled = path
                for name, value in zip(names, values, strict=True):
                    filled = filled.replace(f"{{{name}}}", value)
                answer = await self.service.http.get(filled, headers={"Accept": "application/json"})
                assert answer.status_code in (200, 404), (filled, answer.text)
                self.answers.append((f"GET {filled}", answer.text))
            assert "approval" in path or all(lists), f"nothing to fill {path} with"

    async def named(self, path: str) -> list[str]:
        listed = await self.service.get(path.partition("/{")[0])
        return [each["name"] for each in listed["data"]]

    async def posted(self) -> None:
        """All that is taken was delivered, and something of the rest was given up."""

        async def ends() -> list[set[str]]:
            paths = [f"/v1/webhook-endpoints/{id}/deliveries" for id in self.ids["endpoint_id"]]
            return [{found["status"] for found in (await self.service.get(path))["data"]} for path in paths]

        async def ended() -> bool:
            taken, refused = await ends()
            return taken == {"done"} and "dead" in refused

        await until_true(ended)


@asynccontextmanager
async def world(database_url: str) -> AsyncIterator[World]:
    settings: dict[str, Any] = {"exposed_env": ("MARKED_VARIABLE",), "webhook_pauses_s": (0.01,)}
    async with EchoServer() as echo, running(database_url, log_level="debug", **settings) as service:
        yield World(service, echo)


async def test_no_secret_is_seen_anywhere(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MARKED_VARIABLE", VARIABLE)
    async with world(database_url) as here:
        await here.furnish()
        await here.use()
        await here.fail()
        await here.posted()
        await here.read()
        sent = str([headers for _, headers, _ in here.echo.received])
        for secret in (STORED, AFTER, VARIABLE, TOOL_HEADER, MODEL_HEADER):
            assert secret in sent, "it has to be used, or nothing is shown by this"
        for where, text in here.answers:
            assert_unseen(here.secrets, where, text)
        for path, _, body in here.echo.received:
            assert_unseen(here.secrets, f"what was posted to {path}", body)
    for where, text in await rows_of(database_url):
        assert_unseen(here.secrets, where, text)
    logs = capfd.readouterr()
    assert "request" in logs.out + logs.err
    assert_unseen(here.secrets, "the log", logs.out + logs.err)


async def rows_of(database_url: str) -> list[tuple[str, str]]:
    """Everything that is stored, by table."""
    connection = await asyncpg.connect(database_url)
    try:
        tables = await connection.fetch(
            "SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = relnamespace WHERE nspname = 'public' AND relkind IN ('r', 'p')"
        )
        found = []
        for (name,) in tables:
            rows = await connection.fetch(f"SELECT t::text AS told, to_jsonb(t)::text AS json FROM {name} t")
            found += [(f"the table {name}", row["told"] + row["json"]) for row in rows]
        return found
    finally:
        await connection.close()
