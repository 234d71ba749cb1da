# SPDX-License-Identifier: BSD-3-Clause
"""The reference of the world document."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jupyter_gpubroker.documents import inside
from jupyter_gpubroker.sim.world import WorldDoc

EXAMPLE = """\
now: 100000
nodes:
  - {name: n1, gpus: 4}
  - {name: n2, gpus: 4}
jobs:
  - {id: s-1, kind: session, state: running, gpus: 1, placement: [n1/0],
     granted: 95000, expires: 200000, idle: {since: 99000}}
  - {id: b-1, state: running, gpus: 4, placement: [n2/0, n2/1, n2/2, n2/3], time_limit: 6h}
  - {id: b-2, user: bo, gpus: 4, time_limit: 1h}
"""


def page() -> str:
    """Every key of the world document."""
    lines = [
        "# World",
        "",
        "Generated from `jupyter_gpubroker.sim.world` by `make docs`; do not edit.",
        "",
        "A world is what the scheduler looks at, written down as YAML or JSON:",
        "`jupyter gpubroker plan --world FILE` says what it does there. Times are seconds on a",
        "clock of the world's own, durations are written as in the [policy](policy.md). For",
        "programs there is a [JSON Schema](world.schema.json).",
        "",
        "```yaml",
        EXAMPLE.rstrip(),
        "```",
        "",
        "The Plan has `place` (who starts where), `notices` (who is asked to leave: `reason`,",
        "`deadline`, `for` whom), `reprieves` (notices that are taken back), `reservations`",
        "(where those will start for whom GPUs are kept free, or others leave), `why` for",
        "everybody who waits, and `next`: when to look again.",
        "",
        "| key | if it is left out | |",
        "|---|---|---|",
        *_keys(WorldDoc, ""),
        "",
    ]
    return "\n".join(lines)


def schema() -> str:
    """The same for programs."""
    return json.dumps(WorldDoc.model_json_schema(by_alias=True), indent=1) + "\n"


def _keys(model: type[BaseModel], above: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{above}{field.alias or name}"
        about = " ".join((field.description or "").replace("``", "`").split())
        yield f"| `{key}` | {_default(field)} | {about} |"
        nested = inside(field.annotation)
        if nested is not None and key != "policy":
            many = "[]" if "tuple" in str(field.annotation) else ""
            yield from _keys(nested, f"{key}{many}.")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    if field.default_factory is not None:
        return "the shipped one"
    return "" if field.default in (None, (), {}) else f"`{json.dumps(field.default)}`"
