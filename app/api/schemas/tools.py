"""Tools as clients send and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from app.api.bodies import Body
from app.api.replies import exact, instant
from app.api.schemas.common import NotOffered, View
from app.core.client_tool import CLIENT, LEASE_S, MOST_LEASE_S, MOST_S, ClientSettings
from app.core.header_values import shown
from app.core.http_tool import (
    CONNECT_MS,
    FIRST_BYTE_MS,
    MOST_MS,
    MOST_TRIES,
    TOTAL_MS,
    TRIES,
    HttpSettings,
)
from app.core.json_schema_member import SchemaMember
from app.core.signing import Signing
from app.ports.tool import StoredTool, ToolSpec

NAME = r"^[a-zA-Z0-9_-]{1,64}$"
"""What every model takes as the name of a function."""

HTTP = "http"
MCP = "mcp"

_TIME = "2026-11-30T12:00:00.000Z"
_SAID: dict[str, Any] = {
    "kind": HTTP,
    "description": "Tell the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
    "idempotent": True,
    "http": {
        "url": "https://tools.example/weather",
        "headers": {"Authorization": "env:WEATHER_TOKEN"},
        "timeout_ms": {"connect": CONNECT_MS, "first_byte": FIRST_BYTE_MS, "total": TOTAL_MS},
        "tries": TRIES,
        "signing": {"env": "WEATHER_SIGNING"},
    },
}


_CLIENTS: dict[str, Any] = {
    "kind": CLIENT,
    "description": "Open a door of the building.",
    "parameters": {"type": "object", "properties": {"door": {"type": "string"}}, "required": ["door"]},
    "strict": False,
    "idempotent": False,
    "client": {"expires_s": 600, "lease_s": LEASE_S},
}


def _only_ours(kind: Any) -> Any:
    if kind == MCP:
        words = "tools of MCP servers come with their server: POST /v1/mcp-servers"
        raise PydanticCustomError("mcp_tool", words)
    if kind == "python":
        words = "Python tools are declared in modules that the operator names in BRANCHLINE_TOOL_MODULES"
        raise PydanticCustomError("python_tool", words)
    return kind


Kind = Annotated[Literal["http", "client"], BeforeValidator(_only_ours)]
Milliseconds = Annotated[int, Field(ge=1, le=MOST_MS)]
Url = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"^[\x21-\x7e]+$")]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$")]
HeaderValue = Annotated[str, Field(max_length=4_096, pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")]


class TimeoutBody(Body):
    """How long a call may take, in milliseconds."""

    connect: Milliseconds = Field(CONNECT_MS, description="Until the connection is made.")
    first_byte: Milliseconds = Field(FIRST_BYTE_MS, description="From the request to the answer's beginning.")
    total: Milliseconds = Field(
        TOTAL_MS, description="From the beginning to the end, with all tries and the pauses between them."
    )


class HttpBody(Body):
    """Where a tool is called."""

    url: Url = Field(description="http or https; private addresses only if the operator lists them.")
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=50)] = Field(
        default_factory=dict,
        description="Sent with each call. `env:NAME` sends the value of a variable of the server; the "
        "operator lists which may be used. `credential:NAME` sends the secret of a credential.",
    )
    timeout_ms: TimeoutBody = TimeoutBody()
    tries: Annotated[int, Field(ge=1, le=MOST_TRIES)] = Field(
        TRIES,
        description="How often a call is sent at most: again if the tool is declared idempotent, or if "
        "nothing had been sent. 1 is never again.",
    )
    signing: Signing | None = Field(
        None, description="Signs each request as Standard Webhooks does; absent is unsigned."
    )

    def settings(self) -> dict[str, Any]:
        """What is to be stored."""
        limits = self.timeout_ms
        return HttpSettings(
            self.url,
            self.headers,
            limits.connect,
            limits.first_byte,
            limits.total,
            self.tries,
            self.signing,
        ).settings()


class ClientBody(Body):
    """How long a client has for a call, in seconds."""

    expires_s: Annotated[float, Field(gt=0, le=MOST_S)] | None = Field(
        None, description="Until the result has to be there; `client_call_s` of the settings by default."
    )
    lease_s: Annotated[float, Field(gt=0, le=MOST_LEASE_S)] = Field(
        LEASE_S, description="For how long a worker has a call that it claims, if it does not say."
    )

    def settings(self) -> dict[str, Any]:
        """What is to be stored."""
        return ClientSettings(self.expires_s, self.lease_s).settings()


class PutTool(Body):
    """What a name is to mean."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SAID, _CLIENTS]})

    kind: Kind
    description: Annotated[str, Field(max_length=10_000)] = Field("", description="What models are told.")
    parameters: SchemaMember = Field(
        description="JSON Schema 2020-12 of the arguments, an object; `$ref` only leads inside of it."
    )
    strict: bool = Field(False, description="Whether the arguments must be exactly the schema's properties.")
    idempotent: bool = Field(False, description="Whether a call may be repeated when its outcome is unknown.")
    http: HttpBody | None = Field(None, description="Of the kind `http`.", validate_default=True)
    client: ClientBody | None = Field(None, description="Of the kind `client`; may be left out.")
    redact: NotOffered = None

    @field_validator("http", "client")
    @classmethod
    def _of_its_kind(cls, said: Body | None, field: ValidationInfo) -> Body | None:
        kind = field.data.get("kind")
        if kind == HTTP == field.field_name and said is None:
            raise PydanticCustomError("missing", "a tool of the kind `http` needs it")
        if said is not None and kind not in (None, field.field_name):
            raise PydanticCustomError("other_kind", f"it belongs to tools of the kind `{field.field_name}`")
        return said

    def spec(self, name: str) -> ToolSpec:
        """What is to be stored under the name."""
        return ToolSpec(
            name=name,
            kind=self.kind,
            description=self.description,
            parameters=self.parameters,
            strict=self.strict,
            idempotent=self.idempotent,
            settings=(self.http or self.client or ClientBody()).settings(),
        )


class CreateTool(PutTool):
    """A tool to be registered."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "weather", **_SAID}]})

    name: Annotated[str, Field(pattern=NAME)] = Field(description="What models and clients call it.")


class ReplaceTool(PutTool):
    """A tool to be registered, or to take the place of the one with this name."""

    name: str | None = Field(None, description="The same as in the address, if given.")


class HttpSeen(View):
    """Where a tool is called, as it is shown."""

    url: str
    headers: dict[str, str | None] = Field(
        description="By name, as `env:NAME` or `credential:NAME`; a value that was written out is null."
    )
    timeout_ms: dict[str, int]
    tries: int = Field(description="How often a call is sent at most.")
    signing: dict[str, str] | None = Field(description="The name of what requests are signed with.")


class McpSeen(View):
    """Which server has a tool, and what it is called there."""

    server: str
    tool: str


class ToolView(View):
    """A tool that models can call."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"object": "tool", "name": "weather", **_SAID, "client": None, "mcp": None}
                | {"created_at": _TIME, "updated_at": _TIME}
            ]
        }
    )

    object: Literal["tool"]
    name: str
    kind: Literal["python", "http", "mcp", "client"]
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema of the arguments.")
    strict: bool = Field(description="Whether the arguments must be exactly the schema's properties.")
    idempotent: bool = Field(description="Whether a call may be repeated when its outcome is unknown.")
    http: HttpSeen | None = Field(description="Null for tools of other kinds.")
    client: ClientBody | None = Field(description="Null for tools of other kinds.")
    mcp: McpSeen | None = Field(description="Null for tools of other kinds.")
    created_at: datetime | None = Field(description="Null for tools of Python and MCP, which are read-only.")
    updated_at: datetime | None


class ToolList(View):
    """Every tool of the project."""

    data: list[ToolView]
    has_more: Literal[False]
    next: None


def tool_view(tool: StoredTool) -> dict[str, Any]:
    """A tool as `ToolView` says."""
    spec = tool.spec
    return {
        "object": "tool",
        "name": spec.name,
        "kind": spec.kind,
        "description": spec.description,
        "parameters": exact(spec.parameters),
        "strict": spec.strict,
        "idempotent": spec.idempotent,
        "http": _http_view(HttpSettings.of(spec.settings)) if spec.kind == HTTP else None,
        "client": ClientSettings.of(spec.settings).settings() if spec.kind == CLIENT else None,
        "mcp": None if spec.origin is None else dict(spec.origin),
        "created_at": instant(tool.created_at),
        "updated_at": instant(tool.updated_at),
    }


def _http_view(http: HttpSettings) -> dict[str, Any]:
    return {**http.settings(), "headers": shown(http.headers)}
