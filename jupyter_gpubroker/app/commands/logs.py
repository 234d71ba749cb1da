# SPDX-License-Identifier: BSD-3-Clause
"""``logs``: what the ranks of a job print, from durable logs, by offset."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ...client import Client, Unavailable
from ...core.model import LEASED, TERMINAL, State
from ...inject.gpubroker import views
from ...wire import JobOut
from .command import FAILED, OK, Command, plain

PAUSE_S = 0.5
PATIENCE_S = 120.0
"""A broker that restarts is waited for so long; logs are durable and go on where they were."""

Write = Callable[[int, int, str], None]
"""(attempt, rank, text)."""


class LogsApp(Command):
    """Print the logs of a job, of all ranks or one.

    With --follow it goes on until the job has ended, over restarts of the job and of the
    broker; the exit code is 0 if the job completed."""

    word = "logs"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        parser.add_argument("job", help="id of the job")
        parser.add_argument("--rank", type=int, help="only this rank")
        parser.add_argument("--attempt", type=int, help="an earlier attempt (default: the newest)")
        parser.add_argument("-f", "--follow", action="store_true", help="until the job has ended")

    def run(self) -> int:
        """See the class."""
        with self.client() as client:
            job = client.show(self.args.job)
            several = self.args.rank is None and (job.request.nodes > 1 or job.request.gpus > 1)
            printer = Printer(several=several, json=self.args.json)
            reader = Reader(client, job.id, self.args.rank, printer.write)
            try:
                if self.args.follow:
                    return self._follow(client, reader, self.args.attempt or max(1, job.attempt))
                attempt = self.args.attempt or job.attempt
                if attempt:
                    reader.drain(attempt)
                return OK
            finally:
                printer.close()

    def _follow(self, client: Client, reader: Reader, attempt: int) -> int:
        told, waited, pause = "", 0.0, threading.Event()
        while True:
            try:
                # Looked at before reading: what it printed until then is read below.
                job = client.show(self.args.job)
                attempt = reader.drain_all(attempt, self.args.attempt or job.attempt)
                waited, news = 0.0, _waits(job)
                if self._over(job):
                    return self._ended(job)
            except Unavailable as error:
                if waited >= PATIENCE_S:
                    raise
                waited, news = waited + PAUSE_S, str(error)
            if news and news != told:
                print(f"({news})", file=sys.stderr)
            told = news
            pause.wait(PAUSE_S)

    def _over(self, job: JobOut) -> bool:
        """Whether no more will come of what is followed."""
        one = self.args.attempt is not None
        gone = job.attempt > (self.args.attempt or 0) or job.state not in LEASED
        return job.state in TERMINAL or (one and gone)

    def _ended(self, job: JobOut) -> int:
        print("\n".join(views.describe(plain(job))[:2]), file=sys.stderr)
        return FAILED if job.state in (State.FAILED, State.CANCELLED) else OK


def _waits(job: JobOut) -> str:
    if job.state not in (State.HELD, State.QUEUED, State.STARTING):
        return ""
    return ": ".join(filter(None, (f"{job.id} is {job.state}", views.status(plain(job)))))


@dataclass
class Reader:
    """Reads logs to their present end; nothing is read twice and nothing is left out."""

    client: Client
    job: str
    rank: int | None
    """``None`` = every rank that has a log."""
    write: Write
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    """(attempt, rank) -> where to go on."""

    def drain_all(self, attempt: int, newest: int) -> int:
        """Read every attempt from ``attempt`` on; the newest."""
        for number in range(attempt, newest + 1):
            self.drain(number)
        return max(attempt, newest)

    def drain(self, attempt: int) -> None:
        """Read one attempt's logs."""
        ranks = [0 if self.rank is None else self.rank]
        for rank in ranks:
            found = self._read(attempt, rank)
            if self.rank is None:
                ranks += [other for other in found if other not in ranks]

    def _read(self, attempt: int, rank: int) -> tuple[int, ...]:
        """Read one log; the ranks that have one."""
        while True:
            offset = self.offsets.get((attempt, rank), 0)
            part = self.client.logs(self.job, rank, offset=offset, attempt=attempt)
            if part.text:
                self.write(attempt, rank, part.text)
            self.offsets[attempt, rank] = part.next_offset
            if part.next_offset == offset:
                return part.ranks


@dataclass
class Printer:
    """Prints logs: one as it is, several line by line with the rank in front."""

    several: bool
    json: bool
    _begun: dict[tuple[int, int], str] = field(default_factory=dict)
    """Lines that have no end yet."""

    def write(self, attempt: int, rank: int, text: str) -> None:
        """Print a part of a log."""
        if self.json:
            print(json.dumps({"attempt": attempt, "rank": rank, "text": text}), flush=True)
            return
        if not self.several:
            print(text, end="", flush=True)
            return
        *lines, rest = (self._begun.pop((attempt, rank), "") + text).split("\n")
        if rest:
            self._begun[attempt, rank] = rest
        for line in lines:
            print(f"[rank {rank}] {line}")
        sys.stdout.flush()

    def close(self) -> None:
        """Print the lines that never got their end."""
        for (_, rank), line in self._begun.items():
            print(f"[rank {rank}] {line}", flush=True)
        self._begun.clear()
