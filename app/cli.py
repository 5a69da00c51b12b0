"""The `branchline` command."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app import __version__
from app.adapters.db.keys import PostgresKeys
from app.adapters.db.projects import PostgresProjects
from app.adapters.db.resealing import Found, inspect, reseal
from app.adapters.db.session import Database
from app.adapters.embedded.errors import EmbeddedError
from app.adapters.logs import configure_logs
from app.api.schemas.models import options_shown
from app.core.access import ALL_SCOPES, Principal, Scope
from app.core.errors import Unavailable
from app.first_job import FirstJob, StepFailed
from app.launch import complain, database, local_model, say, say_aside, serve
from app.ports.catalog import ApiKey
from app.ports.sealing import Vault
from app.sealing_wiring import vault_of
from app.server import bound, url_of
from app.settings import BadSettings, Settings, in_development, load_settings
from app.wiring import HOME, ground, keys_of, openapi_document

EXAMPLE_TOOLS = "examples.tools"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 1 when something failed, 2 when something is set wrongly."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except (BadSettings, EmbeddedError) as error:
        return complain(error)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        return complain(BadSettings(f"{error.filename}: {error.strerror}; choose another with --data-dir."))
    except Unavailable as error:
        complain(error)  # the database was there a moment ago: nothing is set wrongly
        return 1
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has seen enough
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="branchline", description="Durable runs of language-model work.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True)

    run = commands.add_parser("run", help="start everything on this machine and do a first job")
    _add_places(run)
    run.add_argument("--exit", action="store_true", help="stop after the first job")
    run.set_defaults(command=_run)

    served = commands.add_parser("serve", help="serve the API and execute runs")
    _add_places(served)
    served.set_defaults(command=_serve)

    migrated = commands.add_parser("migrate", help="bring the database to this version's tables")
    migrated.set_defaults(command=_migrate)

    keys = commands.add_parser("keys", help="make API keys")
    actions = keys.add_subparsers(title="actions", required=True)
    make = actions.add_parser("create", help="make a key and print it, once")
    make.add_argument("--project", default=HOME, help="the key's project, made if there is none of the name")
    make.add_argument("--name", default="cli", help="what the key is called")
    make.add_argument("--scopes", default="read,run", help=f"of {', '.join(Scope)}, separated by commas")
    make.add_argument("--data-dir", type=Path, help="folder of the embedded database and the secret key")
    make.set_defaults(command=_make_key)

    stored = commands.add_parser("credentials", help="look after the secrets that are stored")
    actions = stored.add_subparsers(title="actions", required=True)
    for name, does, command in (
        ("rotate", "seal every stored secret under the first sealing key", _rotate),
        ("check", "tell whether every stored secret opens", _check_secrets),
    ):
        action = actions.add_parser(name, help=does)
        action.add_argument("--data-dir", type=Path, help="folder of the embedded database and the keys")
        action.set_defaults(command=command)

    document = commands.add_parser("openapi", help="print the OpenAPI document")
    document.set_defaults(command=_openapi)

    doctor = commands.add_parser("doctor", help="print the effective settings")
    _add_places(doctor)
    doctor.set_defaults(command=_doctor)
    return parser


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=_port, help="port to listen on; 0 takes any free one")
    parser.add_argument("--data-dir", type=Path, help="folder of the embedded database and the secret key")


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise ValueError(text)
    return port


def _settings(options: argparse.Namespace) -> Settings:
    """The settings, with what the command line says laid over them."""
    given = {
        name: value
        for name in ("host", "port", "data_dir")
        if (value := getattr(options, name, None)) is not None
    }
    settings = load_settings()
    settings = settings.model_copy(update=given)
    return settings.model_copy(update={"data_dir": settings.data_dir.expanduser().absolute()})


def _serve(options: argparse.Namespace) -> int:
    settings = _settings(options)
    configure_logs(form=settings.log_format, level=settings.log_level)
    with bound(settings) as listener, database(settings) as data:

        def up() -> bool:
            say(f"Branchline {__version__} on {url_of(listener)}")
            return True

        serve(settings, listener, data, once_up=up)
    return 0


def _run(options: argparse.Namespace) -> int:
    """Everything on one machine, with the example tools and a small model of its own."""
    began = time.monotonic()
    settings = _settings(options)
    configure_logs(form="text", level="warning")
    settings = settings.model_copy(update={"role": "all"})  # or its first job would wait for others
    if EXAMPLE_TOOLS not in settings.tool_modules:
        settings = settings.model_copy(update={"tool_modules": (*settings.tool_modules, EXAMPLE_TOOLS)})
    outcome = [0]
    with bound(settings) as listener, database(settings) as data, local_model(settings) as model:
        url = url_of(listener)

        def first_job() -> bool:
            say(f"Branchline {__version__} on {url}, after {time.monotonic() - began:.1f} s")
            try:
                with _key(settings, data.url) as key:
                    branch = FirstJob(url, model.name, say, key).perform()
            except StepFailed as failure:
                say(f"The first job failed: {failure}")
                outcome[0] = 1
            else:
                if not options.exit:
                    say(_what_to_try(url, branch, needs_key=key is not None))
            return not options.exit

        serve(settings, listener, data, model=model, once_up=first_job)
    return outcome[0]


@contextlib.contextmanager
def _key(settings: Settings, database_url: str) -> Iterator[str | None]:
    """A key for the first job, revoked after it; None where requests need no key."""

    async def make() -> tuple[ApiKey, str] | None:
        async with ground(database_url) as on:
            if in_development(settings, has_keys=await PostgresKeys(on.database, on.ids).any()):
                return None
            project = await PostgresProjects(on.database, on.ids).ensure(HOME)
            return await keys_of(on, settings).create(
                Principal(project.id, None, ALL_SCOPES),
                project.id,
                name="first job",
                scopes=[Scope.READ, Scope.RUN],
                expires_at=datetime.now(UTC) + timedelta(minutes=10),
            )

    async def revoke(key: ApiKey) -> None:
        async with ground(database_url) as on:
            await keys_of(on, settings).revoke(
                Principal(key.project_id, None, ALL_SCOPES), key.project_id, key.id
            )

    made = asyncio.run(make())
    if made is None:
        yield None
        return
    key, text = made
    try:
        yield text
    finally:
        asyncio.run(revoke(key))


def _what_to_try(url: str, branch: str, *, needs_key: bool) -> str:
    key = " -H 'Authorization: Bearer bl_…'" if needs_key else ""
    return f"""
Try:
  curl {url}/v1/branches/{branch}/messages{key}
  curl -N {url}/v1/branches/{branch}/operate{key} -H 'Content-Type: application/json' \\
       -H 'Accept: text/event-stream' -d '{{"instruction": "Say hello in French."}}'
  curl {url}/v1/branches/{branch}/act{key} -H 'Content-Type: application/json' \\
       -d '{{"requests": [{{"function": "add", "arguments": {{"a": 19, "b": 23}}}}]}}'
Ctrl-C stops it."""


def _database_url(settings: Settings) -> str:
    if settings.database_url is None:
        raise BadSettings("DATABASE_URL has to be set for this command.")
    return settings.database_url.get_secret_value()


def _migrate(_: argparse.Namespace) -> int:
    url = _database_url(load_settings())

    async def work() -> None:
        async with ground(url):
            say("The database has this version's tables.")

    asyncio.run(work())
    return 0


def _make_key(options: argparse.Namespace) -> int:
    """Make an API key in the name of the operator and show it, once."""
    settings = _settings(options)
    names = [name.strip() for name in options.scopes.split(",")]
    if unknown := [name for name in names if name not in set(Scope)]:
        raise BadSettings(f"There is no scope {unknown[0]!r}; there are {', '.join(Scope)}.")
    scopes = [Scope(name) for name in names]

    async def work(url: str) -> None:
        async with ground(url) as on:
            project = await PostgresProjects(on.database, on.ids).ensure(options.project)
            operator = Principal(project.id, None, ALL_SCOPES)
            made = await keys_of(on, settings).create(
                operator, project.id, name=options.name, scopes=scopes, expires_at=None
            )
        key, text = made
        say(text)
        say_aside(
            f"Key {key.id} of project {project.name!r}, scopes {', '.join(key.scopes)}. It is shown only "
            "now. From its next start the service asks every request for a key."
        )

    with database(settings, say_aside) as data:
        asyncio.run(work(data.url))
    return 0


def _rotate(options: argparse.Namespace) -> int:
    """Seal everything anew; the service may run meanwhile, and the command may be stopped and repeated."""
    found = _look_after(options, reseal)
    say(f"Sealed anew: {found.sealed}. Left as they are, because no key opens them: {found.unreadable}.")
    if not found.unreadable:
        say("Sealing keys after the first one may be taken away once every server has the first one.")
    return 1 if found.unreadable else 0


def _check_secrets(options: argparse.Namespace) -> int:
    found = _look_after(options, inspect)
    say(
        f"Under the first sealing key: {found.fine}. Under another one, or not sealed: {found.stale}. "
        f"Not to be opened: {found.unreadable}."
    )
    return 1 if found.unreadable else 0


def _look_after(options: argparse.Namespace, work: Callable[[Database, Vault], Awaitable[Found]]) -> Found:
    settings = _settings(options)
    vault = vault_of(settings)
    if not vault.key_ids:
        raise BadSettings("There is no sealing key: set BRANCHLINE_SEALING_KEYS.")

    async def on(url: str) -> Found:
        async with ground(url) as on:
            return await work(on.database, vault)

    with database(settings, say_aside) as data:
        return asyncio.run(on(data.url))


def _openapi(_: argparse.Namespace) -> int:
    say(json.dumps(openapi_document(), indent=2))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    """The settings as they count; secrets are only said to be there."""
    shown = _settings(options).model_dump(mode="json")
    for model in shown["models"].values():
        model["options"] = options_shown(model["options"])
    for name, value in shown.items():
        say(f"{name} = {json.dumps(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
