# SPDX-License-Identifier: BSD-3-Clause
"""Write the pages of docs/ that the code knows best; with ``--check`` only compare them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jupyter_gpubroker.core.lifecycle import states_markdown
from jupyter_gpubroker.policy import DEFAULT_DOCUMENT, ClassDoc, PolicyDoc, QueueDoc
from jupyter_gpubroker.wire import words_duration

DOCS = Path(__file__).resolve().parent.parent / "docs"
NAMED: Mapping[str, type[BaseModel]] = {"classes": ClassDoc, "queues": QueueDoc}


def policy_page() -> str:
    """Every key of the policy document, with its default."""
    lines = [
        "# Policy",
        "",
        "Generated from `jupyter_gpubroker.policy` by `make docs`; do not edit.",
        "Unknown keys are refused. Durations are written `90s`, `10m`, `2h`, `1-12:00:00`.",
        "",
        "| key | if it is left out |",
        "|---|---|",
        *(f"| `{key}` | {default} |" for key, default in _keys(PolicyDoc, "")),
        "",
        "## The policy that is imported at the first start",
        "",
        "```yaml",
        DEFAULT_DOCUMENT.rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _keys(model: type[BaseModel], above: str) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        key = f"{above}{field.alias or name}"
        nested = NAMED.get(name) or _model(field)
        if name in NAMED:
            key += ".<name>"
        if nested is None or not field.is_required():
            yield key, _default(field)
        if nested is not None:
            yield from _keys(nested, f"{key}.")


def _model(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.is_required():
        return "must be given"
    if value is None:
        return "no limit"
    if isinstance(value, BaseModel):
        shown = value.model_dump(by_alias=True)
        return ", ".join(f"{name} {_word(item)}" for name, item in shown.items())
    return _word(value)


def _word(value: object) -> str:
    return words_duration(value) if isinstance(value, float) else f"`{value}`"


PAGES: Mapping[str, Callable[[], str]] = {
    "states.md": states_markdown,
    "reference/policy.md": policy_page,
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
