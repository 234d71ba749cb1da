# SPDX-License-Identifier: BSD-3-Clause
"""Write the pages of docs/ that the code knows best; with ``--check`` only compare them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from traitlets.utils.importstring import import_item

from jupyter_gpubroker.app.cli import COMMANDS
from jupyter_gpubroker.app.commands.command import Command
from jupyter_gpubroker.app.serve import ServeApp
from jupyter_gpubroker.core.lifecycle import states_markdown
from jupyter_gpubroker.policy import DEFAULT_DOCUMENT, ClassDoc, PolicyDoc, QueueDoc
from jupyter_gpubroker.service.openapi import document
from jupyter_gpubroker.service.routes import ROUTES
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


def rest_page() -> str:
    """Every endpoint, and every model that it takes or answers."""
    api = document(ROUTES, "")
    operations = [
        (method.upper(), path, operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]
    answers = operations[0][2]["responses"]
    lines = [
        "# REST",
        "",
        "Generated from `jupyter_gpubroker.service` by `make docs`; do not edit. The same as an",
        "OpenAPI document is served at `/api/v1/openapi.json`. Through a Hub the paths begin with",
        "`/services/gpubroker`, and the header `Authorization: token …` says who asks; over the",
        "unix socket of a broker without a Hub the account of the asking process does.",
        "",
        "| endpoint | what it does | who may | takes |",
        "|---|---|---|---|",
        *(_endpoint(*operation) for operation in operations),
        "",
        "## Answers that are no answer",
        "",
        "The body is an [ErrorOut](#errorout): the field, what is wrong, and what would work.",
        "",
        "| status | meaning |",
        "|---|---|",
        *(f"| {code} | {item['description']} |" for code, item in answers.items() if code != "200"),
        *_models(api["components"]["schemas"]),
        "",
    ]
    return "\n".join(lines)


def _endpoint(method: str, path: str, operation: Mapping[str, Any]) -> str:
    takes = [f"`{item['name']}`" for item in operation["parameters"] if item["in"] != "path"]
    body = operation.get("requestBody")
    if body is not None:
        takes.insert(0, _kind(body["content"]["application/json"]["schema"]))
    content = next(iter(operation["responses"]["200"]["content"].items()))
    answer = f"{_kind(content[1]['schema'])}{' as events' if 'event' in content[0] else ''}"
    does = f"{operation['summary']} → {answer}"
    return f"| `{method} {path}` | {does} | {operation['description']} | {', '.join(takes)} |"


def _kind(schema: Mapping[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(item) for item in schema["anyOf"]))
    if "enum" in schema:
        return " ".join(f"`{word}`" for word in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _models(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        yield from ("", f"## {name}", "")
        if text := schema.get("description"):
            yield from (" ".join(text.split()), "")
        if "enum" in schema:
            yield _kind(schema)
        fields = schema.get("properties", {})
        if fields:
            yield from ("| field | type | |", "|---|---|---|")
        for field, item in fields.items():
            must = "" if field not in schema.get("required", ()) else "required"
            text = " ".join(item.get("description", "").split())
            yield f"| `{field}` | {_kind(item)} | {text or must} |"


def cli_page() -> str:
    """Every command, with its options."""
    lines = [
        "# Command line",
        "",
        "Generated from `jupyter_gpubroker.app` by `make docs`; do not edit. `--help` tells the same.",
        "Exit codes: 0 done, 1 refused or failed, 2 wrong use, 3 no broker.",
        "",
        "| `jupyter gpubroker …` | |",
        "|---|---|",
        *(f"| [{word}](#{word}) | {does} |" for word, (_, does) in COMMANDS.items()),
        "",
        "Every command but `serve` also takes:",
        "",
        "| argument | |",
        "|---|---|",
        *(_row(action) for action in _own(Command.parser())),
    ]
    for word, (place, _) in COMMANDS.items():
        command = import_item(place)
        lines += ["", f"## {word}", "", " ".join((command.__doc__ or "").split())]
        rows = list(_serve_options() if command is ServeApp else _options(command.parser()))
        lines += ["", "| argument | |", "|---|---|", *rows] if rows else []
    return "\n".join([*lines, ""])


def _options(parser: argparse.ArgumentParser, verb: str = "") -> Iterator[str]:
    common = {action.dest for action in _own(Command.parser())}
    for action in _own(parser):
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield f"| `{choice.dest}` | {choice.help} |"
                yield from _options(action.choices[choice.dest], f"{choice.dest} ")
        elif action.dest not in common:
            yield _row(action, verb)


def _own(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [item for item in parser._actions if not isinstance(item, argparse._HelpAction)]


def _row(action: argparse.Action, verb: str = "") -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = action.metavar or choices or action.dest.upper()
    if not action.option_strings:
        words = str(action.metavar or action.dest)
    else:
        words = ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")
    return f"| `{verb}{words}` | {action.help or ''} |"


def _serve_options() -> Iterator[str]:
    traits = ServeApp.class_traits()
    for name, target in ServeApp.aliases.items():
        owner, trait = target.split(".")
        if owner == ServeApp.__name__:
            text = " ".join(traits[trait].help.split())
            yield f"| `--{name}=…`, in a configuration file `c.{target}` | {text} |"
    for name, (config, text) in ServeApp.flags.items():
        if ServeApp.__name__ in config:
            yield f"| `--{name}` | {text} |"


PAGES: Mapping[str, Callable[[], str]] = {
    "states.md": states_markdown,
    "reference/cli.md": cli_page,
    "reference/policy.md": policy_page,
    "reference/rest.md": rest_page,
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
