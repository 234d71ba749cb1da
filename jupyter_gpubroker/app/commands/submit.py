# SPDX-License-Identifier: BSD-3-Clause
"""``submit``: a script or a command becomes a batch job."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Any

from pydantic import ValidationError

from ...inject.gpubroker import views
from ...inject.gpubroker.submission import Submission, prepare
from ...wire import JobOut, Refusal, RequestIn, SubmitIn, refusal_of
from .command import OK, Command, plain

_SHAPE = ("nodes", "gpus", "memory", "cpus", "host_memory", "time")
_REST = ("torchrun", "name", "queue", "class_name", "max_restarts", "requeue", "exit_zero_done")


class SubmitApp(Command):
    """Submit a batch job: a Python script with its arguments, or any command.

    A script is copied as it is now; later edits change nothing. With more than one node or
    GPU it is started by torchrun, one agent per node."""

    word = "submit"
    usage = "jupyter gpubroker submit [options] [--] SCRIPT.py|COMMAND [ARGUMENTS]"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        unset = argparse.SUPPRESS
        add = parser.add_argument
        add("--nodes", type=int, default=unset, help="machines, all or none (default 1)")
        add("--gpus", default=unset, help="on each node, or a share of one, as 0.5 (default 1)")
        add("--memory", default=unset, help="instead: a share by its GPU memory, as 20GiB")
        add("--cpus", type=float, default=unset, help="on each node")
        add("--host-memory", default=unset, help="on each node, as 64GiB")
        add("--flavor", action="append", default=[], help="kind of GPU; more than once = any of")
        add("--time", default=unset, help="limit, as 10m or 2h (default: of its class)")
        add("--queue", default=unset, help="queue to wait in")
        add("--class", dest="class_name", default=unset, help="priority class")
        add("--name", default=unset, help="a name for people")
        add("--env", action="append", default=[], metavar="NAME[=VALUE]", help="goes along")
        add("--python", default="", help="interpreter of a script (default: python on PATH)")
        yes_no = argparse.BooleanOptionalAction
        add("--torchrun", action=yes_no, default=unset, help="default: with several GPUs")
        add("--max-restarts", type=int, default=unset, help="after failures (default: of class)")
        add("--requeue", action=yes_no, default=unset, help="again after exit 75 at its time limit")
        add(
            "--exit-zero",
            dest="exit_zero_done",
            choices=["done"],
            default=unset,
            help="exit code 0 after it was asked to leave means done, not interrupted",
        )
        add("command", nargs=argparse.REMAINDER, help="what to run")

    def run(self) -> int:
        """See the class."""
        command = self.args.command
        command = command[1:] if command[:1] == ["--"] else command
        if not command:
            self.parser().error("say what to run: a script or a command")
        try:
            submission = prepare(
                command,
                cwd=os.getcwd(),
                environ=os.environ,
                settings=self.args.env,
            )
            body = body_of(vars(self.args), submission)
        except ValidationError as error:
            raise refusal_of(error, SubmitIn) from None
        except Refusal:
            raise
        except ValueError as error:
            raise Refusal("command", str(error)) from None
        with self.client() as client:
            job = client.submit(body)
        self._tell(job, submission.dropped)
        return OK

    def _tell(self, job: JobOut, dropped: tuple[str, ...]) -> None:
        answer = {**plain(job), "dropped": list(dropped)}
        self.show(answer, views.Text(views.describe(answer)))
        if dropped and not self.args.json:
            names = ", ".join(dropped)
            print(f"not passed on: {names} (--env NAME passes a secret on)", file=sys.stderr)


def body_of(options: dict[str, Any], submission: Submission) -> SubmitIn:
    """The request body of a submission with these options; what was not said is left out."""
    shape = {name: options[name] for name in _SHAPE if name in options}
    if options["flavor"]:
        shape["flavors"] = tuple(options["flavor"])
    rest = {name: options[name] for name in _REST if name in options}
    if "exit_zero_done" in rest:
        rest["exit_zero_done"] = True
    return SubmitIn(
        request=RequestIn(**shape),
        argv=submission.argv,
        files=submission.files,
        env=submission.env,
        cwd=submission.cwd,
        python=options["python"] or _python(),
        **rest,
    )


def _python() -> str:
    """The interpreter of the environment that is active in this terminal."""
    return shutil.which("python") or shutil.which("python3") or sys.executable
