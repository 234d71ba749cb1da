# SPDX-License-Identifier: BSD-3-Clause
"""The reference of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from traitlets.utils.importstring import import_item

from jupyter_gpubroker.app.cli import COMMANDS
from jupyter_gpubroker.app.commands.command import Command
from jupyter_gpubroker.app.serve import ServeApp

from .arguments import own, row


def page() -> str:
    """Every command, with its options."""
    lines = [
        "# Command line",
        "",
        "Generated from `jupyter_gpubroker.app` by `make docs`; do not edit.",
        "",
        "`jupyter gpubroker COMMAND --help` tells the same. Where the broker is, is found in the",
        "order `--url`, `GPUBROKER_URL`, the socket of the machine's broker, that of your own.",
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
        *(row(action) for action in own(Command.parser())),
    ]
    for word, (place, _) in COMMANDS.items():
        command = import_item(place)
        lines += ["", f"## {word}", "", " ".join((command.__doc__ or "").split())]
        rows = list(_serve_options() if command is ServeApp else _options(command.parser()))
        lines += ["", "| argument | |", "|---|---|", *rows] if rows else []
    return "\n".join([*lines, ""])


def _options(parser: argparse.ArgumentParser, verb: str = "") -> Iterator[str]:
    common = {action.dest for action in own(Command.parser())}
    for action in own(parser):
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield f"| `{choice.dest}` | {choice.help} |"
                yield from _options(action.choices[choice.dest], f"{choice.dest} ")
        elif action.dest not in common:
            yield row(action, verb)


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
