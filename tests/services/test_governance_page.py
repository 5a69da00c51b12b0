"""The policies on the page about governance can be stored, and decide as the page says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from app.adapters.cel import Cel
from app.api.schemas.policies import PolicySettings
from app.core.governance.governance import Governance, StoredGovernance, StoredPolicies
from app.ports.governance import GateAnswer
from app.services.decisions import Choices
from app.services.governor import Governor
from tests.conftest import ROOT
from tests.core.governance.calls import call
from tests.services.test_governor import ScriptedGate

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs" / "governance.md").read_text("utf-8")
RULES, REMOTE, PERMISSIONS = map(json.loads, re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize("body", [{"gate": RULES}, {"gate": REMOTE}, {"permissions": PERMISSIONS}])
def test_they_can_be_stored(body: dict[str, Any]) -> None:
    read = PolicySettings.model_validate(body, context=Choices(Cel(), {}, exposed={"GATE_SIGNING"}))
    assert read.policies() == body


@pytest.mark.parametrize(
    ("policy", "function", "arguments", "effect"),
    [
        ({"gate": RULES}, "transfer", {"amount": 100}, "allow"),
        ({"gate": RULES}, "transfer", {"amount": 100.5}, "escalate"),
        ({"gate": RULES}, "transfer", {}, "deny"),
        ({"gate": RULES}, "other", {}, "allow"),
        ({"gate": {"rules": [{"when": "has(arguments.path)", "effect": "deny"}]}}, "f", {}, "allow"),
        ({"permissions": PERMISSIONS}, "read_file", {"path": "/srv/a"}, "allow"),
        ({"permissions": PERMISSIONS}, "read_file", {"path": "/srv/../etc/passwd"}, "deny"),
        ({"permissions": PERMISSIONS}, "read_file", {"path": "/srv/a", "as": "root"}, "deny"),
        ({"permissions": PERMISSIONS}, "list_all", {}, "allow"),
        ({"permissions": PERMISSIONS}, "write_file", {"path": "/srv/a"}, "escalate"),
        ({"permissions": PERMISSIONS}, "shell", {"command": "rm -rf x"}, "deny"),
        ({"permissions": PERMISSIONS}, "shell", {"command": "ls"}, "deny"),
    ],
)
async def test_they_decide_as_the_page_says(
    policy: dict[str, Any], function: str, arguments: dict[str, Any], effect: str
) -> None:
    governor = Governor(Cel(), ScriptedGate(GateAnswer("allow")))
    governance = Governance.of(StoredGovernance(project=StoredPolicies(**policy)))
    assert (await governor.decide(call(function, arguments), governance)).effect == effect
