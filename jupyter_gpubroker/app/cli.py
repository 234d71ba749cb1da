# SPDX-License-Identifier: BSD-3-Clause
"""``jupyter gpubroker``: one application, and its subcommands."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jupyter_core.application import JupyterApp, NoStart

_COMMANDS = f"{__package__}.commands"

COMMANDS: dict[str, tuple[str, str]] = {
    "submit": (f"{_COMMANDS}.submit.SubmitApp", "Submit a batch job: a script or a command."),
    "queue": (f"{_COMMANDS}.jobs.QueueApp", "Who waits for GPUs, in order, and why."),
    "jobs": (f"{_COMMANDS}.jobs.JobsApp", "Your jobs and sessions, the newest first."),
    "show": (f"{_COMMANDS}.jobs.ShowApp", "One job or session."),
    "explain": (f"{_COMMANDS}.jobs.ExplainApp", "Why a job waits, and what happened to it."),
    "cancel": (f"{_COMMANDS}.jobs.CancelApp", "Stop jobs or sessions."),
    "extend": (f"{_COMMANDS}.jobs.ExtendApp", "Give a job or session more time."),
    "logs": (f"{_COMMANDS}.logs.LogsApp", "What a job prints, by rank."),
    "session": (f"{_COMMANDS}.sessions.SessionApp", "The GPU of this Jupyter server."),
    "sessions": (f"{_COMMANDS}.sessions.SessionsApp", "Your living sessions."),
    "nodes": (f"{_COMMANDS}.cluster.NodesApp", "The machines and their GPUs."),
    "policy": (f"{_COMMANDS}.cluster.PolicyApp", "Show, check or apply the policy."),
    "plan": (f"{_COMMANDS}.simulation.PlanApp", "What the scheduler does in a world of yours."),
    "simulate": (
        f"{_COMMANDS}.simulation.SimulateApp",
        "How machines and a policy would serve a workload.",
    ),
    "bench": (f"{_COMMANDS}.bench.BenchApp", "Experiments with published results."),
    "doctor": (f"{_COMMANDS}.doctor.DoctorApp", "Look for what is missing, with remedies."),
    "serve": (f"{__package__}.serve.ServeApp", "Run the broker."),
}
"""Subcommand -> (where it is, what it does); imported when it is used."""


class GPUBrokerApp(JupyterApp):
    """Time-limited GPUs for notebooks and gang-scheduled training jobs, from one queue."""

    name = "jupyter-gpubroker"
    description = __doc__
    subcommands = COMMANDS
    aliases = {}  # noqa: RUF012 - traitlets reads these class attributes
    flags = {}  # noqa: RUF012

    def _find_subcommand(self, name: str) -> str:
        """Programs called jupyter-gpubroker-… on PATH are not ours."""
        return ""

    def initialize(self, argv: Any = None) -> None:
        """Find the subcommand; everything behind it is its own affair."""
        argv = sys.argv[1:] if argv is None else argv
        word = argv[0] if argv else "--help"
        if word in COMMANDS:
            self.initialize_subcommand(word, argv[1:])
        elif word in ("-h", "--help", "help"):
            print(overview())
            self.exit(0)
        elif word == "--version":
            print(_version())
            self.exit(0)
        else:
            wrong = f"there is no command {word!r}"
            if word.startswith("-"):
                wrong = f"options go after the command, as in `jupyter gpubroker nodes {word} …`"
            print(f"jupyter gpubroker: {wrong}\n\n{overview()}", file=sys.stderr)
            self.exit(2)

    def start(self) -> None:
        """Run the subcommand."""
        assert self.subapp is not None
        self.subapp.start()
        raise NoStart


def overview() -> str:
    """All subcommands, one line each."""
    lines = [f"  {word.ljust(9)} {does}" for word, (_, does) in COMMANDS.items()]
    head = f"{GPUBrokerApp.description}\n\nusage: jupyter gpubroker COMMAND [--help] …"
    return "\n".join([head, "", *lines])


def _version() -> str:
    try:
        return version("jupyter-gpubroker")
    except PackageNotFoundError:  # run from a checkout
        return "unknown"
