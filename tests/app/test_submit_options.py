# SPDX-License-Identifier: BSD-3-Clause
"""A job is described by the same words in a notebook and at a terminal."""

from __future__ import annotations

import argparse

from jupyter_gpubroker.app.commands.submit import SubmitApp
from jupyter_gpubroker.inject.gpubroker.magics import Magics

OF_COMMANDS = {"--json", "--url", "--config", "--help"}
"""Every command has these."""
OF_CELLS = {"--wait"}
"""A cell may last as long as the job; at a terminal ``logs --follow`` does."""


def spelled(parser: argparse.ArgumentParser) -> set[str]:
    return {word for action in parser._actions for word in action.option_strings if len(word) > 2}


def test_the_magic_and_the_command_take_the_same_options() -> None:
    magic = spelled(Magics.gpu_submit.parser)  # type: ignore[attr-defined]
    command = spelled(SubmitApp.parser())
    assert magic - OF_CELLS == command - OF_COMMANDS
    assert magic >= OF_CELLS
    assert command >= OF_COMMANDS
    assert {"--exit-zero", "--requeue", "--no-requeue", "--torchrun", "--no-torchrun"} <= magic
