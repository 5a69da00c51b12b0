"""The examples of how to verify a post take what we sign, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from app.core.webhooks import headers, secret_of
from tests.architecture.test_documents import blocks
from tests.conftest import ROOT

PAGE = ROOT / "docs/how-to/receive-webhooks.md"
SECRET, OTHER = secret_of(b"s" * 32), secret_of(b"o" * 32)
BODY = '{"type":"run.callbacks","data":{"text":"ä"}}'.encode()

DRIVER = """
import {{ verified }} from "./receiver.mjs";
for (const [secret, headers, body] of {cases}) {{
  try {{ verified(secret, headers, Buffer.from(body, "hex")); console.log("taken"); }}
  catch {{ console.log("refused"); }}
}}
"""


def cases() -> list[tuple[str, dict[str, str], bytes, bool]]:
    now = int(time.time())
    good = headers("msg_1", now, BODY, [SECRET])
    return [
        (SECRET, good, BODY, True),
        (SECRET, headers("msg_1", now, BODY, [OTHER, SECRET]), BODY, True),
        (OTHER, good, BODY, False),
        (SECRET, good, BODY + b" ", False),
        (SECRET, {**good, "webhook-id": "msg_2"}, BODY, False),
        (SECRET, {**good, "webhook-signature": "v1,"}, BODY, False),
        (SECRET, {**good, "webhook-signature": "v1"}, BODY, False),
        (SECRET, headers("msg_1", now - 3_600, BODY, [SECRET]), BODY, False),
    ]


@pytest.mark.parametrize("case", range(len(cases())))
def test_in_python(case: int) -> None:
    # Made now: what was signed when the tests were collected may be too old by now.
    secret, said, body, taken = cases()[case]
    (source,) = blocks(PAGE, "python")
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(compile(source, str(PAGE), "exec"), names)
    if taken:
        assert names["verified"](secret, said, body) == json.loads(body)
    else:
        with pytest.raises(ValueError):
            names["verified"](secret, said, body)


def test_in_node(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (source,) = blocks(PAGE, "js")
    (tmp_path / "receiver.mjs").write_text(source, "utf-8")
    told = json.dumps([(secret, said, body.hex()) for secret, said, body, _ in cases()])
    (tmp_path / "driver.mjs").write_text(DRIVER.format(cases=told), "utf-8")
    out = subprocess.run(
        [node, str(tmp_path / "driver.mjs")], capture_output=True, text=True, timeout=60, check=True
    )
    assert out.stdout.split() == ["taken" if taken else "refused" for *_, taken in cases()]
