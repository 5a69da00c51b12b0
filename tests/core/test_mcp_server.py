"""What tools of MCP servers are called here."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.mcp_server import (
    NAME_LENGTH,
    SERVER_NAME,
    McpServer,
    offered_name,
    server_header_faults,
)

TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LONG = "a" * 80


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("calendar_update", "mcp__s__calendar_update"),
        ("Find-2", "mcp__s__Find-2"),
        ("calendar.update", "mcp__s__calendar_update_a616ce8d"),
        ("user-profile/update", "mcp__s__user-profile_update_0c6c4839"),
        ("Create CIFS Share", "mcp__s__Create_CIFS_Share_c2451732"),
        ("tiedosto.ä", "mcp__s__tiedosto___c09da4d8"),
        (LONG, "mcp__s__" + "a" * 47 + "_0f45e858"),
        ("a" * 56, "mcp__s__" + "a" * 56),
        ("", "mcp__s___e3b0c442"),
    ],
)
def test_a_name_is_kept_where_it_can_be_and_changed_the_same_way_for_ever(tool: str, name: str) -> None:
    assert offered_name("s", tool) == name


@given(st.lists(st.text(max_size=80), unique=True, max_size=8))
def test_every_name_is_one_that_models_take_and_no_other_tools(tools: list[str]) -> None:
    names = [offered_name("a-server_2", tool) for tool in tools]
    assert all(TAKEN.fullmatch(name) and len(name) <= NAME_LENGTH for name in names)
    assert len(set(names)) == len(tools)


@given(st.from_regex(SERVER_NAME, fullmatch=True), st.text(min_size=1, max_size=30))
def test_the_server_can_be_read_from_the_name(server: str, tool: str) -> None:
    prefix, found, _ = offered_name(server, tool).split("__", 2)
    assert (prefix, found) == ("mcp", server)


@pytest.mark.parametrize("name", ["", "A", "a__b", "_a", "a_", "a.b", "a" * 49, "ä", "a\n"])
def test_names_that_no_server_may_have(name: str) -> None:
    assert not re.search(SERVER_NAME.replace("$", r"\Z"), name)


def test_a_server_is_stored_whole_and_shows_no_secret() -> None:
    server = McpServer("s", "https://s.example", (("A", "secret-value"), ("B", "env:NAME")), trust_hints=True)
    assert McpServer.of("s", server.settings()) == server
    assert server.variables() == {"B": "NAME"}
    assert "secret-value" not in repr(server)


def test_headers_of_the_protocol_are_not_to_be_chosen() -> None:
    faults = server_header_faults({"Mcp-Session-Id": "", "Accept": "", "Host": "", "X": "", "x": ""})
    assert set(faults) == {"Mcp-Session-Id", "Accept", "Host", "x"}
