"""Settings from the environment and from a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from app.cli import main
from app.settings import BadSettings, Settings, check_exposure, in_development, load_settings

Write = Callable[[str], None]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable and no file of the one who runs the tests plays a part."""
    for name in list(os.environ):
        if name.startswith("BRANCHLINE_") or name == "DATABASE_URL":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def toml(tmp_path: Path) -> Write:
    def write(text: str) -> None:
        (tmp_path / "branchline.toml").write_text(text)

    return write


def test_the_defaults_serve_this_machine_alone() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.role) == ("127.0.0.1", 8000, "all")
    assert settings.lease_ms == 15_000
    assert settings.heartbeat_s == 15
    check_exposure(settings, has_keys=False)


def test_the_environment_wins_over_the_file(toml: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    toml('port = 9000\nlog_level = "debug"\ndatabase_url = "postgresql://file/db"\n')
    monkeypatch.setenv("BRANCHLINE_PORT", "9001")
    monkeypatch.setenv("DATABASE_URL", "postgresql://environment/db")
    settings = load_settings()
    assert (settings.port, settings.log_level) == (9001, "debug")
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://environment/db"


def test_lists_are_separated_by_commas_in_the_environment_and_are_lists_in_the_file(
    toml: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml('allowed_hosts = ["ollama", "10.0.0.0/8"]\n')
    monkeypatch.setenv("BRANCHLINE_EXPOSED_ENV", "A_KEY, B_KEY,")
    monkeypatch.setenv("BRANCHLINE_WEBHOOK_PAUSES_S", "1, 2.5")
    settings = load_settings()
    assert settings.exposed_env == ("A_KEY", "B_KEY")
    assert settings.webhook_pauses_s == (1, 2.5)
    assert settings.allowed_hosts == ("ollama", "10.0.0.0/8")


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRANCHLINE_PORT", "")
    assert load_settings().port == 8000


def test_models_come_from_the_file_and_from_the_environment(
    toml: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml(
        "[models.small]\n"
        'provider = "openai"\nmodel = "tiny"\nbase_url = "http://127.0.0.1:1"\napi_key_env = "THE_KEY"\n'
        "[models.small.lifecycle.timeout]\ntotal_ms = 60000\n"
    )
    monkeypatch.setenv("BRANCHLINE_MODELS", '{"other": {"provider": "scripted", "model": "x"}}')
    models = load_settings().models
    assert set(models) == {"small", "other"}
    endpoint = models["small"].endpoint("small", {"THE_KEY": "secret"})
    assert (endpoint.model, endpoint.api_key) == ("tiny", "secret")
    assert models["small"].lifecycle is not None
    assert models["small"].lifecycle.level() == {"timeout": {"total_ms": 60_000}}
    with pytest.raises(BadSettings, match=r"models\.small\.api_key_env: the variable 'THE_KEY' is not set"):
        models["small"].endpoint("small", {})


def test_prices_come_from_the_file_as_the_decimals_that_stand_there(toml: Write) -> None:
    toml(
        '[models.small]\nprovider = "openai"\nmodel = "tiny"\nprice = {input = 0.1, output = "0.30"}\n'
        '[[prices]]\nprovider = "openai"\nmodel = "big"\nhost = "models.example"\ninput = 1.25\noutput = 10\n'
        'as_of = 2026-11-30\nsource = "an invoice"\n'
    )
    settings = load_settings()
    price = settings.models["small"].endpoint("small", {}).price
    assert price is not None
    assert (str(price.input), str(price.output)) == ("0.1", "0.30")
    (listed,) = settings.prices
    assert (str(listed.input), listed.host, listed.as_of) == ("1.25", "models.example", date(2026, 11, 30))


@pytest.mark.parametrize(
    ("text", "variables", "names"),
    [
        ("prot = 1\n", {}, ["prot: unknown setting"]),
        ("", {"BRANCHLINE_PROT": "1"}, ["BRANCHLINE_PROT", "BRANCHLINE_PORT"]),
        ("", {"BRANCHLINE_DATABASE_URL": "x"}, ["BRANCHLINE_DATABASE_URL"]),
        ("", {"BRANCHLINE_PORT": "many"}, ["port: "]),
        ("", {"BRANCHLINE_PORT": "70000", "BRANCHLINE_ROLE": "king"}, ["port: ", "role: "]),
        ('[models.m]\nprovider = "openai"\n', {}, ["models.m.model: "]),
        (
            '[[prices]]\nprovider = "openai"\nmodel = "m"\ninput = -1\n',
            {},
            ["prices.0.input", "prices.0.output"],
        ),
        ('[models.m]\nprovider = "openai"\nmodel = "x"\nurl = "y"\n', {}, ["models.m.url: unknown setting"]),
        ("", {"BRANCHLINE_MODELS": "{"}, ["models"]),
        ("port = ", {}, [""]),
        ("", {"BRANCHLINE_CONFIG": "nowhere.toml"}, ["BRANCHLINE_CONFIG", "nowhere.toml"]),
        ("", {"BRANCHLINE_SECRET_KEY": "short"}, ["secret_key: "]),
        ("", {"BRANCHLINE_WEBHOOK_TIMEOUT_S": "31"}, ["webhook_timeout_s: "]),
        ("", {"BRANCHLINE_HANDLER_TIMEOUT_S": "0"}, ["handler_timeout_s: "]),
        ("", {"BRANCHLINE_WEBHOOK_PAUSES_S": "1,soon"}, ["webhook_pauses_s"]),
        ("", {"BRANCHLINE_WEBHOOK_PAUSES_S": "1,-5"}, ["webhook_pauses_s"]),
    ],
)
def test_what_is_unknown_or_wrong_is_named(
    toml: Write, monkeypatch: pytest.MonkeyPatch, text: str, variables: dict[str, str], names: list[str]
) -> None:
    toml(text)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadSettings) as caught:
        load_settings()
    for name in names:
        assert name in str(caught.value)
    assert "short" not in str(caught.value).replace("shorter", "")


def test_variables_of_the_tests_are_none_of_its_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRANCHLINE_TEST_ANYTHING", "1")
    load_settings()


def test_secrets_do_not_show_when_settings_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRANCHLINE_SECRET_KEY", "a very secret pepper")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hidden@h/d")
    settings = load_settings()
    assert settings.secret_key is not None
    assert "pepper" not in repr(settings)
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("host", "keys", "extra", "refused", "development"),
    [
        ("127.0.0.1", False, {}, None, True),
        ("localhost", False, {}, None, True),
        ("::1", False, {}, None, True),
        ("127.0.0.1", True, {}, None, False),
        ("127.0.0.1", False, {"bootstrap_key": "x" * 16}, None, False),
        ("0.0.0.0", False, {}, "0.0.0.0", False),
        ("::", False, {}, "::", False),
        ("192.168.1.5", False, {"secret_key": "x" * 16}, "192.168.1.5", False),
        ("0.0.0.0", True, {}, "BRANCHLINE_SECRET_KEY", False),
        ("0.0.0.0", True, {"secret_key": "x" * 16}, None, False),
        ("0.0.0.0", False, {"secret_key": "x" * 16, "bootstrap_key": "y" * 16}, None, False),
    ],
)
def test_others_are_served_only_with_keys(
    host: str, keys: bool, extra: dict[str, str], refused: str | None, development: bool
) -> None:
    settings = Settings(host=host, **extra)  # type: ignore[arg-type]
    assert in_development(settings, has_keys=keys) == development
    if refused is None:
        check_exposure(settings, has_keys=keys)
    else:
        with pytest.raises(BadSettings, match=refused):
            check_exposure(settings, has_keys=keys)


def test_the_doctor_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = {"X-Key": "hidden-in-a-header", "X-Named": "env:KEY"}
    models = {"m": {"provider": "openai", "model": "m", "options": {"headers": headers}}}
    monkeypatch.setenv("BRANCHLINE_MODELS", json.dumps(models))
    monkeypatch.setenv("BRANCHLINE_SECRET_KEY", "hidden pepper of keys")
    monkeypatch.setenv("BRANCHLINE_SEALING_KEYS", "a:hidden,b:hidden")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "hidden" not in shown
    assert '"X-Named": "env:KEY"' in shown


MCP = """
[[mcp_servers]]
name = "files"
command = ["serve", "--all"]
env = ["FILES"]
cwd = "/srv"

[[mcp_servers]]
name = "wiki"
url = "http://127.0.0.1:1/mcp"
headers = {Authorization = "a written secret"}
timeout_ms = {call = 5}
"""


def test_mcp_servers_come_from_the_file(toml: Write) -> None:
    toml(MCP)
    settings = load_settings()
    files, wiki = (each.server() for each in settings.mcp_servers)
    assert (files.command, files.env, files.cwd, files.url) == (("serve", "--all"), ("FILES",), "/srv", None)
    assert (wiki.url, wiki.call_ms, wiki.connect_ms) == ("http://127.0.0.1:1/mcp", 5, 5_000)
    assert wiki.headers == (("Authorization", "a written secret"),)
    assert "a written secret" not in repr(settings)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ('name = "a"', "either a url or a command"),
        ('name = "a"\nurl = "http://a/"\ncommand = ["b"]', "either a url or a command"),
        ('name = "a"\nurl = "file:///a"', "mcp_servers.0.url"),
        ('name = "a__b"\nurl = "http://a/"', "mcp_servers.0.name"),
        ('name = "a"\ncommand = ["b"]\nheaders = {A = "b"}', "headers are sent to a url"),
        ('name = "a"\nurl = "http://a/"\nenv = ["B"]', "env and cwd are a program's"),
        ('name = "a"\nurl = "http://a/"\nheaders = {Mcp-Session-Id = "b"}', "set by the service"),
        ('name = "a"\nurl = "http://a/"\nheaders = {X = "credential:b"}', "headers.X: credentials are"),
        ('name = "a"\ncommand = "sh -c b"', "mcp_servers.0.command"),
        ('name = "a"\ncommand = ["b"]\nshell = true', "unknown setting"),
    ],
)
def test_mcp_servers_that_make_no_sense_are_named(toml: Write, server: str, words: str) -> None:
    toml(f"[[mcp_servers]]\n{server}\n")
    with pytest.raises(BadSettings) as caught:
        load_settings()
    assert words in str(caught.value)
