# SPDX-License-Identifier: BSD-3-Clause
"""``plan``: what the scheduler would do, without a broker."""

from __future__ import annotations

import argparse
import json

from ...sim import planning
from ...wire import Refusal
from .cluster import read
from .command import OK, USAGE, Command


class Offline(Command):
    """A command that needs no broker; what it is given is wrong: exit code 2."""

    def run(self) -> int:
        """Compute, and show it; nothing is done with input that is wrong in any place."""
        try:
            self.show(*self.compute())
        except Refusal as refusal:
            return self._failed(USAGE, "wrong input", str(refusal), field=refusal.field)
        return OK

    def compute(self) -> tuple[dict[str, object], str]:
        """The result as JSON values and as people read it; Refusal."""
        raise NotImplementedError


class PlanApp(Offline):
    """What the scheduler does in a world that is written down: who starts where, who is asked to
    leave and for whom, and why the others wait. Prints JSON."""

    word = "plan"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        parser.add_argument(
            "--world", required=True, metavar="FILE", help="YAML or JSON; - = standard input"
        )

    def compute(self) -> tuple[dict[str, object], str]:
        """See ``Offline.compute``."""
        made = planning.plan(read(self.args.world))
        return made, json.dumps(made, indent=1)
