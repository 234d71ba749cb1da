# SPDX-License-Identifier: BSD-3-Clause
"""``plan`` and ``simulate``: what the scheduler would do, without a broker."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ... import policy as policies
from ...core.amounts import parse_duration
from ...sim import planning, tables, workload
from ...sim.report import report, words
from ...sim.simulation import play
from ...wire import Refusal
from .cluster import parse, read
from .command import Offline


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


class SimulateApp(Offline):
    """How machines and a policy would serve a workload: the production broker in virtual time,
    on jobs, sessions and cells from CSV files. What the columns mean:
    docs/how-to/simulate.md."""

    word = "simulate"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        add = parser.add_argument
        add("--nodes", required=True, metavar="CSV", help="the machines")
        add("--jobs", metavar="CSV", help="batch jobs")
        add("--sessions", metavar="CSV", help="notebook sessions")
        add("--cells", metavar="CSV", help="cells of the sessions that need GPUs")
        add("--policy", metavar="FILE", help="policy.yaml (default: the shipped one)")
        add("--until", metavar="TIME", help="stop then, as 7d (default: when all has ended)")
        add("--attach-cost-s", default="0", metavar="S", help="to bind a session to its GPUs")
        add(
            "--hold",
            choices=[hold.value for hold in workload.Hold],
            default=workload.Hold.SESSION.value,
            help="a session has its GPUs while it is open, or while its cells run",
        )
        add(
            "--restart-cost-s", default="0", metavar="S", help="of a job that had to leave its GPUs"
        )
        add("--seed", type=int, help="draw the order of what comes at one second")
        add("--plot", metavar="FILE", help="draw it, as .svg or .png; takes the extra plot")

    def compute(self) -> tuple[dict[str, object], str]:
        """See ``Offline.compute``."""
        asked = self.args
        draw = _painter(asked.plot)
        policy = parse(asked.policy) if asked.policy else policies.default()
        files = workload.Files(
            nodes=(asked.nodes, read(asked.nodes)),
            jobs=_file(asked.jobs),
            sessions=_file(asked.sessions),
            cells=_file(asked.cells),
        )
        options = workload.Options(
            until=parse_duration(asked.until, "until") if asked.until else None,
            attach_s=_seconds("attach-cost-s", asked.attach_cost_s),
            hold=workload.Hold(asked.hold),
            restart_s=_seconds("restart-cost-s", asked.restart_cost_s),
            seed=asked.seed,
        )
        made = report(play(workload.read(files, policy), policy, options))
        draw(made)
        return made, words(made)


def _file(name: str | None) -> tuple[str, str] | None:
    return None if name is None else (name, read(name))


def _seconds(name: str, text: str) -> float:
    try:
        return float(str(tables.seconds(text)))
    except ValueError as error:
        raise Refusal(name, str(error)) from None


def _painter(name: str | None) -> Callable[[Mapping[str, Any]], None]:
    """What draws a report into that file; Refusal before hours are played in vain."""
    if name is None:
        return lambda _made: None
    path = Path(name)
    if path.suffix not in (".svg", ".png"):
        raise Refusal("plot", f"{name} is neither .svg nor .png", "name it so")
    if not path.parent.is_dir():
        raise Refusal("plot", f"there is no folder {path.parent}")
    try:
        from ...sim.plot import draw  # noqa: PLC0415 - matplotlib is an extra
    except ImportError as error:
        remedy = "pip install matplotlib"
        raise Refusal("plot", f"there is no matplotlib to draw with ({error})", remedy) from None
    return lambda made: draw(made, path)
