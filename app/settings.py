"""What the operator chose: the environment and branchline.toml, read once at start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from app.adapters.command_model.settings import CommandSettings
from app.core.addresses import is_loopback
from app.core.header_values import credentials_in
from app.core.http_tool import MOST_MS
from app.core.limits.options import ModelLimits
from app.core.mcp_server import (
    CALL_MS,
    CONNECT_MS,
    REQUEST_MS,
    SERVER_NAME,
    McpServer,
    server_header_faults,
)
from app.core.operate.lifecycle import LifecycleBody
from app.core.retention import MOST_DAYS
from app.core.usage.prices import ListedPrice, Price
from app.core.webhooks import PAUSES_S
from app.ports.hooks import MAX_TIMEOUT_S
from app.ports.provider import ModelEndpoint

PREFIX = "BRANCHLINE_"
CONFIG_VARIABLE = "BRANCHLINE_CONFIG"
DEFAULT_CONFIG = "branchline.toml"
_NOT_OURS = ("BRANCHLINE_TEST_", "BRANCHLINE_BENCH_", CONFIG_VARIABLE)
"""Variables of the same prefix that are no settings of the service."""


class BadSettings(Exception):
    """The service cannot start with these settings; the message names each one at fault."""


def _split(value: Any) -> Any:
    return (
        [part for part in (p.strip() for p in value.split(",")) if part] if isinstance(value, str) else value
    )


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""In the environment a list is separated by commas."""
SecretWords = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split)]
Numbers = Annotated[tuple[Annotated[float, Field(ge=0)], ...], NoDecode, BeforeValidator(_split)]


class ModelSettings(BaseModel):
    """A model that the operator offers to every project: `[models.NAME]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: str
    """The wire format that its server speaks; `command` where a command answers."""
    model: str
    """The name on the wire."""
    base_url: str | None = None
    """Where it is served; the provider's own address by default. Private addresses are fine here."""
    api_key_env: str | None = None
    """The variable that holds its key."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The provider's own."""
    lifecycle: LifecycleBody | None = None
    """Lifecycle options for runs on this model."""
    limits: ModelLimits | None = None
    """What this process may ask of it, and when it is left alone."""
    price: Price | None = None
    """What its tokens cost; by default what the table of prices says."""
    command: CommandSettings | None = None
    """The command that answers, for the provider `command`: `[models.NAME.command]`."""

    @model_validator(mode="after")
    def _has_a_command_or_an_address(self) -> Self:
        if (self.command is not None) is not (self.provider == "command"):
            raise ValueError("the provider `command` and the part `command` belong together")
        if self.command is not None and (self.base_url or self.api_key_env or self.options):
            raise ValueError("a command has no base_url, no api_key_env and no options")
        return self

    def endpoint(self, name: str, environment: Mapping[str, str]) -> ModelEndpoint:
        """The model under its name, with its key. Raises BadSettings when the key's variable is not set."""
        key = None
        if self.api_key_env is not None:
            key = environment.get(self.api_key_env)
            if not key:
                raise BadSettings(f"models.{name}.api_key_env: the variable {self.api_key_env!r} is not set")
        return ModelEndpoint(
            name,
            self.provider,
            self.model,
            self.base_url,
            key,
            self.options,
            limits=self.limits,
            price=self.price,
            trusted=True,
        )


class McpTimeoutSettings(BaseModel):
    """How long an MCP server may take, in milliseconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connect: int = Field(CONNECT_MS, ge=1, le=MOST_MS)
    request: int = Field(REQUEST_MS, ge=1, le=MOST_MS)
    call: int = Field(CALL_MS, ge=1, le=MOST_MS)


class McpServerSettings(BaseModel):
    """An MCP server that the operator offers to every project: `[[mcp_servers]]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=SERVER_NAME)
    """Part of the names of its tools."""
    url: str | None = Field(None, pattern=r"^https?://[\x21-\x7e]+$")
    """Where it speaks MCP over streamable HTTP, at any address; or"""
    command: tuple[str, ...] = ()
    """the program that speaks it over its standard input and output, and its arguments."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Sent with each request; `env:NAME` sends the value of a variable."""
    env: tuple[str, ...] = ()
    """Variables that the program is given beside PATH and its like."""
    cwd: str | None = None
    """The folder that the program runs in."""
    timeout_ms: McpTimeoutSettings = McpTimeoutSettings()
    """How long a connection, a request that is no call, and a call may take, in milliseconds."""
    trust_hints: bool = False
    """Whether what it says of its tools' effects is believed."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.url is None) == (not self.command):
            raise ValueError("a server has either a url or a command")
        if self.url is None and self.headers:
            raise ValueError("headers are sent to a url; a program is given variables with env")
        if self.url is not None and (self.env or self.cwd):
            raise ValueError("env and cwd are a program's; a url is sent headers")
        if faults := server_header_faults(self.headers):
            raise ValueError("; ".join(f"headers.{name}: {fault}" for name, fault in faults.items()))
        if named := credentials_in({name: value.get_secret_value() for name, value in self.headers.items()}):
            names = ", ".join(f"headers.{name}" for name in named)
            raise ValueError(f"{names}: credentials are projects'; name a variable with env:NAME")
        return self

    def server(self) -> McpServer:
        """As the service takes it."""
        limits = self.timeout_ms
        return McpServer(
            self.name,
            self.url,
            tuple((name, value.get_secret_value()) for name, value in self.headers.items()),
            self.command,
            self.env,
            self.cwd,
            limits.connect,
            limits.request,
            limits.call,
            self.trust_hints,
        )


class Settings(BaseSettings):
    """Every setting. In the environment each is `BRANCHLINE_` and its name in capitals, but DATABASE_URL."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True, populate_by_name=True
    )

    host: str = "127.0.0.1"
    """Address to listen on. Any but a loopback one needs an API key and a secret key."""
    port: int = Field(8000, ge=0, le=65_535)
    """Port to listen on; 0 takes any free one."""
    database_url: SecretStr | None = Field(None, validation_alias="DATABASE_URL")
    """`postgresql://…`; without one an embedded Postgres starts in the data directory."""
    data_dir: Path = Path(".branchline")
    """Folder of the embedded database and of the secret key; it may hold other files."""
    role: Literal["all", "api", "worker"] = "all"
    """`api` accepts runs and executes none, `worker` executes them and serves no clients, `all` does both."""
    lease_ms: int = Field(15_000, ge=1_000, le=600_000)
    """How long a run waits after its process was last heard of before another takes it over."""
    grace_s: float = Field(10, ge=0, le=3_600)
    """How long a process that is stopped lets its runs go on before it leaves them to another."""
    history_bytes: int = Field(32 * 1024 * 1024, ge=0)
    """Memory for the conversations that were used last, about, over all branches; 0 reads them anew."""

    retention_days: int | None = Field(None, ge=1, le=MOST_DAYS)
    """How long the log of an ended run is kept, unless its project says so; without it, for ever."""

    secret_key: SecretStr | None = Field(None, min_length=16)
    """Pepper of the API keys' digests; on loopback one is made in the data directory."""
    bootstrap_key: SecretStr | None = Field(None, min_length=16)
    """A key with every scope, for the first set-up."""
    sealing_keys: SecretWords = ()
    """Keys that seal stored secrets, each `id:base64` of 32 bytes: the first one seals, every one opens."""
    sealing_key_file: Path | None = None
    """A file with one such key on each line, in place of them; in development one is made by itself."""
    exposed_env: Words = ()
    """Variables whose values may be keys of models, headers of models and tools, and secrets to sign with."""
    allowed_hosts: Words = ()
    """Private names and networks that models, tools, gates, hooks, webhooks and images may lead to."""
    cors_origins: Words = ()
    """Origins of web pages that may call the API, or `*`."""

    body_bytes: int = Field(4 * 1024 * 1024, ge=1_024)
    """Largest request body."""
    json_depth: int = Field(64, ge=8, le=200)
    """Levels of arrays and objects in a body."""
    import_bytes: int = Field(1024**3, ge=1_024)
    """Largest export that is taken in; it is kept in a temporary file until all of it is there."""
    import_line_bytes: int = Field(16 * 1024 * 1024, ge=1_024)
    """Longest line of an export that is taken in."""
    heartbeat_s: float = Field(15, gt=0)
    """Silence on an event stream after which a comment is sent."""
    wait_default_s: float = Field(30, gt=0)
    """How long a request waits for the end of its run when it does not say so."""
    wait_max_s: float = Field(55, gt=0)
    """How long it may wait at most."""

    model_weights: Path | None = None
    """A GGUF file for the small local model of `branchline run`, in place of the one that comes with it."""
    tool_modules: Words = ()
    """Python modules that declare tools in a list `TOOLS`."""
    guardrail_modules: Words = ()
    """Python modules that declare guardrails in a list `GUARDRAILS`."""
    context_provider_modules: Words = ()
    """Python modules that declare context providers in a list `CONTEXT_PROVIDERS`."""
    handler_modules: Words = ()
    """Python modules that declare handlers of callbacks in a list `HANDLERS`."""
    handler_timeout_s: float = Field(10, gt=0)
    """How long a handler's call may take before the next one; one that runs in a thread is waited for."""
    tool_timeout_s: float = Field(600, gt=0, le=600)
    """Longest that one attempt at a tool call may take, and that an HTTP tool may ask for."""
    approval_s: float = Field(86_400, gt=0, le=2_592_000)
    """How long a person has time to decide about a call that needs an approval."""
    client_call_s: float = Field(3_600, gt=0, le=2_592_000)
    """How long a client has to bring the result of a call that it carries out, unless the tool says so."""
    hook_modules: Words = ()
    """Python modules that declare hooks of tool calls in a list `HOOKS`."""
    hook_timeout_s: float = Field(5, gt=0, le=MAX_TIMEOUT_S)
    """How long a hook is waited for that does not say otherwise; one before a call then blocks it."""
    webhook_timeout_s: float = Field(15, gt=0, le=30)
    """How long one try of a webhook post may take."""
    webhook_pauses_s: Numbers = PAUSES_S
    """Pauses after the failed tries of a webhook post; after one try more its delivery is given up."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Models offered to every project: `[models.NAME]` in the file, JSON in the environment."""
    mcp_servers: tuple[McpServerSettings, ...] = ()
    """MCP servers offered to every project: `[[mcp_servers]]` in the file, JSON in the environment."""
    prices: tuple[ListedPrice, ...] = ()
    """What models cost that do not say so: `[[prices]]` in the file, JSON in the environment."""
    lifecycle: LifecycleBody | None = None
    """Lifecycle options that projects inherit: `[lifecycle]` in the file, JSON in the environment."""

    log_format: Literal["json", "text"] = "json"
    """How log lines are written, to standard error."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least urgent lines that are written."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file; nothing else is read."""
        file = TomlConfigSettingsSource(settings_cls, toml_file=_config_file())
        return (init_settings, env_settings, file)


def load_settings() -> Settings:
    """Read them. Raises BadSettings for what is unknown or wrong, all of it in one message."""
    _refuse_unknown_variables()
    try:
        return Settings()
    except ValidationError as error:
        raise BadSettings("\n".join(_complaints(error))) from None
    except ValueError as error:  # JSON or TOML that cannot be read
        raise BadSettings(str(error)) from None


def _config_file() -> Path:
    named = os.environ.get(CONFIG_VARIABLE)
    if named and not Path(named).is_file():
        raise BadSettings(f"{CONFIG_VARIABLE} names {named!r}, which is no file")
    return Path(named or DEFAULT_CONFIG)


def _refuse_unknown_variables() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields if name != "database_url"}
    unknown = sorted(
        name
        for name in os.environ
        if name.startswith(PREFIX) and not name.startswith(_NOT_OURS) and name not in known
    )
    if unknown:
        raise BadSettings(f"unknown in the environment: {', '.join(unknown)}; known are {_listed(known)}")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _complaints(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(str(step) for step in fault['loc'])}: "
        + ("unknown setting" if fault["type"] == "extra_forbidden" else fault["msg"])
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def in_development(settings: Settings, *, has_keys: bool) -> bool:
    """Whether requests need no key: nobody has made one, and only this machine can ask."""
    return is_loopback(settings.host) and not has_keys and settings.bootstrap_key is None


def check_exposure(settings: Settings, *, has_keys: bool) -> None:
    """Refuse to serve other machines without keys. Raises BadSettings."""
    if is_loopback(settings.host):
        return
    if not has_keys and settings.bootstrap_key is None:
        raise BadSettings(
            f"Without an API key only this machine may be served, and {settings.host!r} is open to others: "
            f"set {PREFIX}BOOTSTRAP_KEY, make a key with `branchline keys create`, or bind 127.0.0.1."
        )
    if settings.secret_key is None:
        raise BadSettings(f"{PREFIX}SECRET_KEY has to be set where others than this machine are served.")
