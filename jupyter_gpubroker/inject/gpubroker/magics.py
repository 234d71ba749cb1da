# SPDX-License-Identifier: BSD-3-Clause
"""The ``%gpu_*`` magics."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import Magics as IPythonMagics

from .completion import VERBS
from .control import Binding
from .http import BrokerError, Client, quoted
from .ipython import (
    Decorator,
    argument,
    line_cell_magic,
    line_magic,
    magic_arguments,
    magics_class,
    parse,
)
from .jobs import Batch, Job, Session, read_log
from .live import Live
from .options import add_submit_options, submit_body, wants_torchrun
from .submission import Submission, check_programs, families, prepare, settings_of
from .views import OVER, Rows, Text, job_rows, queue_rows

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _submit_options(function: _Function) -> _Function:
    """The options of the command line; above the other arguments of the magic."""
    options: list[Decorator] = []
    add_submit_options(lambda *names, **more: options.append(argument(*names, **more)))
    for option in reversed(options):
        function = option(function)
    return function


@magics_class
class Magics(IPythonMagics):
    """Submit jobs and use the GPU session of this server, from a cell."""

    def __init__(self, shell: Any, binding: Binding) -> None:
        super().__init__(shell)
        self._binding = binding
        self._live = Live()

    # --- batch -----------------------------------------------------------------------

    @magic_arguments()
    @_submit_options
    @argument("--wait", action="store_true", help="block until it is over")
    @argument("command", nargs=argparse.REMAINDER, help="a script or command and its arguments")
    @line_cell_magic
    def gpu_submit(self, line: str, cell: Optional[str] = None) -> Batch:
        """Run a script, a command, or this cell (%%gpu_submit) as a job on the cluster.

        The code is copied now: later edits change nothing. With more than one GPU or node
        it runs under torchrun. Options of this magic stand before the command."""
        args = parse(self.gpu_submit, line)
        with _usage():
            job = self._submit(args, cell)
            self._live.show(job)
            if args.wait:
                _wait_for(job)
            return job

    @magic_arguments()
    @argument("--rank", type=int, help="only this rank (default: all)")
    @argument("--attempt", type=int, help="an earlier attempt (default: the newest)")
    @argument("--follow", "-f", action="store_true", help="go on until the job is over")
    @argument("job", help="the job's id")
    @line_magic
    def gpu_logs(self, line: str) -> None:
        """Print the logs of a job; with --follow, interrupt the kernel to stop reading."""
        args = parse(self.gpu_logs, line)
        with _usage():
            try:
                _Printer(Client.from_environment(), args).run()
            except KeyboardInterrupt:
                print(f"(stopped reading; {args.job} goes on)")

    @magic_arguments()
    @argument("jobs", nargs="+", metavar="job", help="ids of the jobs to stop")
    @line_magic
    def gpu_cancel(self, line: str) -> Rows:
        """Stop jobs, waiting or running."""
        args = parse(self.gpu_cancel, line)
        with _usage():
            client = Client.from_environment()
            return job_rows([client.post(f"/jobs/{quoted(job)}/cancel") for job in args.jobs])

    @magic_arguments()
    @argument("job", help="the id of a job or a session")
    @line_magic
    def gpu_explain(self, line: str) -> Text:
        """Why a job waits, for whom and until when; and everything that happened to it."""
        args = parse(self.gpu_explain, line)
        with _usage():
            return Job(Client.from_environment(), {"id": quoted(args.job)}).explain()

    @magic_arguments()
    @argument("--state", help="only jobs in this state")
    @line_magic
    def gpu_jobs(self, line: str) -> Rows:
        """Your jobs, the newest first."""
        args = parse(self.gpu_jobs, line)
        with _usage():
            client = Client.from_environment()
            return job_rows(client.get("/jobs", kind="batch", state=args.state))

    @magic_arguments()
    @line_magic
    def gpu_queue(self, line: str) -> Rows:
        """Who waits for GPUs, in order, and why."""
        parse(self.gpu_queue, line)
        with _usage():
            return queue_rows(Client.from_environment().get("/queue"))

    # --- the session of this server ----------------------------------------------------

    @magic_arguments()
    @argument("--gpus", help="request: how many, or a share of one, as 0.5 (default 1)")
    @argument("--memory", help="request: a share by its GPU memory, as 20GiB")
    @argument("--time", help="request: for how long, as 2h (default: your site's)")
    @argument("--queue", default="", help="request: the queue to wait in")
    @argument("--class", dest="class_name", default="", help="request: the priority class")
    @argument("--wait", action="store_true", help="request, resume: block until the GPU is here")
    @argument("verb", nargs="?", default="show", choices=VERBS, help="default: show")
    @argument("amount", nargs="?", help="extend: by how much, as 1h")
    @line_magic
    def gpu_session(self, line: str) -> Optional[Session]:
        """The GPU of this server: show, request, release, park, resume, keep or extend it.

        All kernels of the server share it. release gives it back; park gives it back and
        keeps what is in its memory, resume brings that back."""
        args = parse(self.gpu_session, line)
        if args.amount and args.verb != "extend":
            raise UsageError(f"{args.verb} takes no {args.amount!r}; only extend takes a time")
        if args.verb == "extend" and not args.amount:
            raise UsageError("extend by how much? for example %gpu_session extend 1h")
        with _usage():
            return self._session(args)

    @magic_arguments()
    @line_magic
    def gpu_release(self, line: str) -> Optional[Session]:
        """Give the GPU of this server back; nothing of it is kept. Jobs go on."""
        parse(self.gpu_release, line)
        released: Optional[Session] = self.gpu_session("release")
        return released

    def _submit(self, args: argparse.Namespace, cell: Optional[str]) -> Batch:
        body = _job(args)
        client = Client.from_environment()
        sent = prepare(
            args.command, cwd=os.getcwd(), environ=os.environ, settings=args.env, cell=cell
        )
        check_programs(sent, body["python"], torchrun=wants_torchrun(vars(args)))
        _tell_dropped(sent.dropped)
        return Batch(
            client,
            client.post("/jobs", {**body, **_code(sent)}, {"Idempotency-Key": uuid.uuid4().hex}),
        )

    def _session(self, args: argparse.Namespace) -> Optional[Session]:
        client, server = Client.from_environment(), _server()
        if args.verb == "request":
            return self._shown(
                Session(client, client.post("/sessions", _request(args, server))), args
            )
        answer = client.get("/servers/state", server=server)["session"]
        if answer is None:
            if args.verb != "show":
                raise UsageError(f"no GPU session to {args.verb}: see %gpu_session request")
            print("No GPU: %gpu_session request --gpus 0.5 --time 2h asks for one.")
            return None
        if args.verb != "show":
            body = {"time": args.amount} if args.verb == "extend" else None
            answer = client.post(f"/sessions/{answer['id']}/{args.verb}", body)
        return self._shown(Session(client, answer), args)

    def _shown(self, session: Session, args: argparse.Namespace) -> Session:
        self._live.show(session)
        if args.wait and args.verb in ("request", "resume"):
            self._wait_for_gpu(session)
        return session

    def _wait_for_gpu(self, session: Session) -> None:
        """Until this kernel is bound to it: the server says so after the broker did."""
        told = self._binding.told
        while told.state != "leased" or told.session != session.id:
            if not session.refresh() and session.state != "running":
                raise UsageError(f"{session.id} is {session.state}: no GPU came")
            if session.problem:
                raise UsageError(session.problem)
            told = self._binding.wait(0.5)


class _Printer:
    """Prints logs, all ranks or one."""

    def __init__(self, client: Client, args: argparse.Namespace) -> None:
        self._client, self._args = client, args
        self._offsets: dict[int, int] = {}
        self._ranks = [args.rank] if args.rank is not None else [0]

    def run(self) -> None:
        """Print what there is; with --follow, until the job is over."""
        pause = threading.Event()
        while True:
            job = self._client.get(f"/jobs/{quoted(self._args.job)}")
            over = job["state"] in OVER
            more = self._print_all()
            if not more and (over or not self._args.follow):
                return
            if not more:
                pause.wait(0.5)

    def _print_all(self) -> bool:
        """Print one part of each rank's log; True if there was anything."""
        printed = [self._print(rank) for rank in self._ranks]
        return any(printed)

    def _print(self, rank: int) -> bool:
        offset = self._offsets.get(rank, 0)
        part = read_log(self._client, self._args.job, rank, offset, self._args.attempt)
        if self._args.rank is None:
            self._ranks = sorted({*self._ranks, *part["ranks"]})
        self._offsets[rank] = part["next_offset"]
        prefix = f"[rank {rank}] " if len(self._ranks) > 1 else ""
        for line in part["text"].splitlines():
            print(prefix + line)
        return bool(part["next_offset"] > offset)


@contextmanager
def _usage() -> Iterator[None]:
    """What the broker refuses is the user's to mend: show it as one, in one line."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from None
    except BrokerError as error:
        if 400 <= error.status < 500:
            raise UsageError(str(error)) from None
        raise


def _shape(args: argparse.Namespace, **more: Any) -> dict[str, Any]:
    if args.gpus and args.memory:
        raise UsageError("give a share as --gpus or as --memory, not both")
    shape = {"gpus": args.gpus or "1", "memory": args.memory, "time": args.time, **more}
    return {name: value for name, value in shape.items() if value is not None}


def _job(args: argparse.Namespace) -> dict[str, Any]:
    if args.gpus and args.memory:
        raise UsageError("give a share as --gpus or as --memory, not both")
    return {"python": args.python or sys.executable, **submit_body(vars(args))}


def _tell_dropped(names: Sequence[str]) -> None:
    secrets = [name for name in names if _may_be_named(name)]
    ours = [name for name in names if name not in secrets]
    if ours:
        print(f"Not passed on (this server's): {', '.join(families(ours))}")
    if secrets:
        print(f"Not passed on, they look like secrets (--env NAME does): {', '.join(secrets)}")


def _may_be_named(name: str) -> bool:
    try:
        settings_of([f"{name}="], {})
    except ValueError:
        return False
    return True


def _code(sent: Submission) -> dict[str, Any]:
    return {"argv": sent.argv, "files": sent.files, "env": sent.env, "cwd": sent.cwd}


def _wait_for(job: Batch) -> None:
    try:
        job.wait()
    except KeyboardInterrupt:
        print(f"(stopped waiting; {job.id} goes on, %gpu_cancel {job.id} stops it)")


def _request(args: argparse.Namespace, server: str) -> dict[str, Any]:
    return {
        "request": _shape(args),
        "server": server,
        "incarnation": int(os.environ.get("GPUBROKER_INCARNATION") or 0),
        "queue": args.queue,
        "class": args.class_name,
    }


def _server() -> str:
    key = os.environ.get("GPUBROKER_SESSION")
    if not key:
        raise UsageError(
            "this kernel belongs to no server of the GPU broker (GPUBROKER_SESSION is not set):"
            " start it from a Jupyter server that has jupyter-gpubroker"
        )
    return key.partition("/")[2]
