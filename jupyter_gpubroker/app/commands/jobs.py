# SPDX-License-Identifier: BSD-3-Clause
"""``queue``, ``jobs``, ``show``, ``explain``, ``cancel`` and ``extend``."""

from __future__ import annotations

import argparse

from ...core.model import Kind, State
from ...inject.gpubroker import views
from ...inject.gpubroker.story import story
from .command import OK, Command, plain, rows


def _one_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", help="id of a job or a session")


class QueueApp(Command):
    """Who waits for GPUs, in order, and why."""

    word = "queue"

    def run(self) -> int:
        """See the class."""
        with self.client() as client:
            answer = client.queue()
        self.show(answer, views.queue_rows(rows(answer)))
        return OK


class JobsApp(Command):
    """Your jobs and sessions, the newest first."""

    word = "jobs"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        parser.add_argument("--all", action="store_true", help="everybody's (admins)")
        parser.add_argument("--kind", choices=[kind.value for kind in Kind])
        parser.add_argument("--state", choices=[state.value for state in State])
        parser.add_argument("--limit", type=int, help="at most so many (default 200)")

    def run(self) -> int:
        """See the class."""
        args = self.args
        with self.client() as client:
            answer = client.jobs(
                everybody=args.all,
                kind=Kind(args.kind) if args.kind else None,
                state=State(args.state) if args.state else None,
                limit=args.limit,
            )
        self.show(answer, views.job_rows(rows(answer)))
        return OK


class ShowApp(Command):
    """One job or session."""

    word = "show"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        _one_job(parser)

    def run(self) -> int:
        """See the class."""
        with self.client() as client:
            answer = client.show(self.args.job)
        self.show(answer, views.Text(views.describe(plain(answer))))
        return OK


class ExplainApp(Command):
    """Why a job waits, for whom and until when, and everything that happened to it."""

    word = "explain"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        _one_job(parser)

    def run(self) -> int:
        """See the class."""
        with self.client() as client:
            answer = client.explain(self.args.job)
        self.show(answer, views.Text(story(plain(answer))))
        return OK


class CancelApp(Command):
    """Stop jobs or sessions, waiting or running; what they kept is deleted."""

    word = "cancel"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        parser.add_argument("jobs", nargs="+", metavar="job", help="ids of jobs or sessions")

    def run(self) -> int:
        """See the class."""
        with self.client() as client:
            answer = [client.cancel(job) for job in self.args.jobs]
        self.show(answer, views.job_rows(rows(answer)))
        return OK


class ExtendApp(Command):
    """Give a running job or session more time; granted while nobody waits for it."""

    word = "extend"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        _one_job(parser)
        parser.add_argument("time", help="how much more, as 30m or 2h")

    def run(self) -> int:
        """See the class."""
        with self.client() as client:
            answer = client.extend(self.args.job, self.args.time)
        self.show(answer, views.Text(views.describe(plain(answer))))
        return OK
