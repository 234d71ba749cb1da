# SPDX-License-Identifier: BSD-3-Clause
"""Write the pages of docs/ that the code knows best; with ``--check`` only compare them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pages import cli, configuration, magics, policy, python, rest, world

from jupyter_gpubroker.core.lifecycle import states_markdown

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES: Mapping[str, Callable[[], str]] = {
    "states.md": states_markdown,
    "reference/cli.md": cli.page,
    "reference/configuration.md": configuration.page,
    "reference/magics.md": magics.page,
    "reference/policy.md": policy.page,
    "reference/python.md": python.page,
    "reference/rest.md": rest.page,
    "reference/world.md": world.page,
    "reference/world.schema.json": world.schema,
}


def main(check: bool) -> int:
    """Write or compare every page; the number of pages that differ."""
    stale = 0
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale += 1
        done = "is not what the code says; run: make docs" if check else "written"
        sys.stdout.write(f"docs/{name} {done}\n")
        if not check:
            path.write_text(text, "utf-8")
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
