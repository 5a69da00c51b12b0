"""A process that runs the local model until killed; it prints the address and the model's process id."""

from __future__ import annotations

import json
import sys

from app.adapters.embedded.model import EmbeddedModel


def main() -> None:
    """Start, report, wait."""
    with EmbeddedModel() as model:
        assert model.pid
        print(json.dumps({"base_url": model.base_url, "pid": str(model.pid)}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
