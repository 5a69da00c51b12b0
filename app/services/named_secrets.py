"""What models and headers only name: check it, and put the secrets in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.core.errors import CredentialUnreadable, FieldError, Unavailable
from app.core.header_values import credentials_in, names_something, sealed_in, variables_in
from app.core.json_text import pointer
from app.core.sealing import MARK
from app.core.signing import Signing
from app.ports.catalog import ModelSpec
from app.ports.provider import ModelEndpoint
from app.services.credentials import Credentials
from app.services.decisions import NOT_EXPOSED


@dataclass(frozen=True, slots=True)
class NamedSecrets:
    """The secrets that may be named: variables of the server, and credentials of the project."""

    exposed: Mapping[str, str | None]
    """The variables that the operator has listed, None for those without a value."""
    credentials: Credentials

    async def faults(self, project_id: UUID, spec: ModelSpec) -> list[FieldError]:
        """What is wrong with what the model names."""
        faults = []
        if spec.api_key_env is not None and spec.credential is not None:
            words = "a model has its key from a credential or from a variable: leave one of them out"
            faults.append(FieldError("/credential", words, "contradictory"))
        if spec.api_key_env is not None and spec.api_key_env not in self.exposed:
            faults.append(FieldError("/api_key_env", NOT_EXPOSED, "not_exposed"))
        if spec.credential is not None:
            faults += await self.credentials.faults(project_id, [("/credential", spec.credential)])
        headers = headers_of(spec)
        return [*faults, *await self.header_faults(project_id, headers, "options", "headers")]

    async def header_faults(self, project_id: UUID, headers: Mapping[str, str], *at: str) -> list[FieldError]:
        """What is wrong with what headers name; `at` leads to the headers."""
        faults = [
            FieldError(pointer(*at, header), NOT_EXPOSED, "not_exposed")
            for header, variable in variables_in(headers).items()
            if variable not in self.exposed
        ]
        faults += [
            FieldError(pointer(*at, header), f"a value that is written out does not begin with {MARK!r}")
            for header in sealed_in(headers)
        ]
        references = [(pointer(*at, header), name) for header, name in credentials_in(headers).items()]
        return faults + await self.credentials.faults(project_id, references)

    async def signing_faults(self, project_id: UUID, signing: Signing | None, *at: str) -> list[FieldError]:
        """What is wrong with the secret that is named to sign with; `at` leads to its naming."""
        if signing is None:
            return []
        if signing.env is not None:
            known = signing.env in self.exposed
            return [] if known else [FieldError(pointer(*at, "env"), NOT_EXPOSED, "not_exposed")]
        return await self.credentials.faults(
            project_id, [(pointer(*at, "credential"), signing.credential or "")]
        )

    async def of(self, project_id: UUID, spec: ModelSpec) -> Mapping[str, str]:
        """Of each credential that the model refers to, its secret now. Raises what the port raises."""
        return {name: await self.credentials.secret(project_id, name) for name in credentials_of(spec)}

    def endpoint(self, spec: ModelSpec, secrets: Mapping[str, str]) -> ModelEndpoint:
        """The endpoint, with `secrets` by credential. Raises Unavailable, CredentialUnreadable."""
        key = None
        if spec.credential is not None:
            key = secrets[spec.credential]
        elif spec.api_key_env is not None:
            key = self._variable(spec.api_key_env, "the model's key")
        options = spec.options
        headers = headers_of(spec)
        if sealed_in(headers):
            raise CredentialUnreadable(
                f"A header of the model {spec.name!r} does not open with the operator's "
                "BRANCHLINE_SEALING_KEYS; register the model anew."
            )
        if any(map(names_something, headers.values())):
            named = {
                header: self._variable(variable, f"the header {header!r}")
                for header, variable in variables_in(headers).items()
            }
            named |= {header: secrets[name] for header, name in credentials_in(headers).items()}
            options = {**options, "headers": {**headers, **named}}
        return ModelEndpoint(spec.name, spec.provider, spec.model, spec.base_url, key, options)

    def _variable(self, name: str, use: str) -> str:
        value = self.exposed.get(name)
        if not value:
            raise Unavailable(f"The variable {name!r} with {use} is not set here.")
        return value


def headers_of(spec: ModelSpec) -> Mapping[str, str]:
    """The headers among the options, if this provider has some."""
    found: Any = spec.options.get("headers")
    if not isinstance(found, Mapping):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def credentials_of(spec: ModelSpec) -> set[str]:
    """The credentials that the model refers to."""
    named = set(credentials_in(headers_of(spec)).values())
    return named if spec.credential is None else named | {spec.credential}
