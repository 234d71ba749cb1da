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
from ...inject.gpubroker.options import add_submit_options, submit_body, wants_torchrun
from ...inject.gpubroker.submission import Submission, check_programs, prepare
from ...wire import JobOut, Refusal, SubmitIn, refusal_of
from .command import OK, Command, plain


class SubmitApp(Command):
    """Submit a batch job: a Python script with its arguments, or any command.

    A script is copied as it is now; later edits change nothing. With more than one node or
    GPU it is started by torchrun, one agent per node."""

    word = "submit"
    usage = "jupyter gpubroker submit [options] [--] SCRIPT.py|COMMAND [ARGUMENTS]"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        add_submit_options(parser.add_argument)
        parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run")

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
            torchrun = wants_torchrun(vars(self.args))
            check_programs(submission, body.python, torchrun=torchrun)
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
    code = {"argv": submission.argv, "files": submission.files, "env": submission.env}
    python = options["python"] or _python()
    return SubmitIn.model_validate(
        {**submit_body(options), **code, "cwd": submission.cwd, "python": python}
    )


def _python() -> str:
    """The interpreter of the environment that is active in this terminal."""
    return shutil.which("python") or shutil.which("python3") or sys.executable
