# SPDX-License-Identifier: BSD-3-Clause
"""Rows of tables: the arguments of commands and magics."""

from __future__ import annotations

import argparse


def own(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Everything that a parser takes, but ``--help``."""
    return [item for item in parser._actions if not isinstance(item, argparse._HelpAction)]


def row(action: argparse.Action, verb: str = "") -> str:
    """One argument; ``verb`` stands before it."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = str(action.metavar or choices or action.dest.upper()).strip("<>")
    if not action.option_strings:
        words = str(action.metavar or choices or action.dest)
    else:
        words = ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")
    return f"| `{verb}{words}` | {action.help or ''} |"
