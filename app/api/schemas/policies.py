"""Gates, permissions and hooks, as branches and projects have them alike."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from app.api.bodies import Body
from app.api.replies import exact
from app.core.governance.gate import Gate
from app.core.governance.governance import POLICIES
from app.core.governance.hooks import Hooks
from app.core.governance.permissions import Permissions
from app.ports.catalog import Branch, Project


class PolicySettings(Body):
    """What governs tool calls; each is replaced as a whole."""

    gate: Gate | None = Field(
        None, description="Asked before every tool call: rules, or another address. Null is none."
    )
    permissions: Permissions | None = Field(
        None, description="Which tools may be called with which arguments. Null is none."
    )
    hooks: Hooks | None = Field(None, description="Addresses that are told of tool calls. Null is none.")

    def policies(self) -> dict[str, Any]:
        """By name, only what was sent, as it is stored."""
        return {name: stored(getattr(self, name)) for name in POLICIES if name in self.model_fields_set}


def policies_view(governed: Branch | Project) -> dict[str, Any]:
    """The members of a view that show them."""
    return {name: exact(getattr(governed, name)) for name in POLICIES}


def stored(policy: Any) -> Any:
    """As it is kept, only what was said."""
    if policy is None:
        return None
    return [hook.stored() for hook in policy] if isinstance(policy, list) else policy.stored()
