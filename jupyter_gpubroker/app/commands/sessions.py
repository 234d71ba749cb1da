# SPDX-License-Identifier: BSD-3-Clause
"""``sessions`` and ``session``: the GPUs of your Jupyter servers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from ...client import Client
from ...inject.gpubroker import views
from ...wire import JobOut, Refusal, RequestIn, SessionIn
from .command import OK, Command, Verbs, plain, rows

_IN_A_TERMINAL = "run it in a terminal of JupyterLab, or press Request in its GPU sidebar"
_VERBS: Mapping[str, tuple[Callable[[Client, str], JobOut], str]] = {
    "release": (Client.release, "end it; nothing is kept"),
    "park": (Client.park, "give its GPUs back and keep its state"),
    "resume": (Client.resume, "queue it to get GPUs back"),
    "keep": (Client.keep, "it is still needed: not to be taken for a while"),
    "discard": (Client.discard, "end it and delete what it kept"),
}


class SessionsApp(Command):
    """Your living sessions."""

    word = "sessions"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        parser.add_argument("--all", action="store_true", help="everybody's (admins)")

    def run(self) -> int:
        """See the class."""
        with self.client() as client:
            answer = client.sessions(everybody=self.args.all)
        self.show(answer, session_rows(answer))
        return OK


class SessionApp(Command):
    """The GPU session of this Jupyter server: show it, ask for one, or change it.

    In a terminal of JupyterLab it is the session of that server; elsewhere your only one,
    or the one named with --id."""

    word = "session"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        verbs = Verbs(parser, "request|release|park|resume|keep|…", required=False)
        request = verbs.add("request", "ask for GPUs for this server")
        unset = argparse.SUPPRESS
        request.add_argument("--gpus", default=unset, help="how many, or a share, as 0.5")
        request.add_argument("--memory", default=unset, help="instead: by GPU memory, as 20GiB")
        request.add_argument("--flavor", action="append", default=[], help="kind of GPU; any of")
        request.add_argument("--time", default=unset, help="limit, as 2h (default: of its class)")
        request.add_argument("--queue", default="", help="queue to wait in")
        request.add_argument("--class", dest="class_name", default="", help="priority class")
        named = [verbs.add(verb, words) for verb, (_, words) in _VERBS.items()]
        extend = verbs.add("extend", "more time, granted while nobody waits")
        extend.add_argument("time", help="how much more, as 30m")
        for verb in (*named, extend):
            verb.add_argument("--id", dest="session", default=unset, help="another session")
        parser.add_argument("--id", dest="session", default="", help="another session")

    def run(self) -> int:
        """See the class."""
        with self.client() as client:
            answer = self._done(client)
        self.show(answer, views.Text(views.describe(plain(answer))))
        return OK

    def _done(self, client: Client) -> JobOut:
        verb = self.args.verb
        if verb == "request":
            return client.open_session(self._request())
        session = self.args.session or one_session(client)
        if verb == "extend":
            return client.extend(session, self.args.time)
        return client.show(session) if verb is None else _VERBS[verb][0](client, session)

    def _request(self) -> SessionIn:
        key = os.environ.get("GPUBROKER_SESSION", "")
        if not key:
            raise Refusal(
                "session",
                "a session belongs to a Jupyter server, and this is no terminal of one",
                _IN_A_TERMINAL,
            )
        options = vars(self.args)
        given = ("gpus", "memory", "time")
        shape: dict[str, Any] = {name: options[name] for name in given if name in options}
        if options["flavor"]:
            shape["flavors"] = tuple(options["flavor"])
        return SessionIn(
            request=RequestIn(**shape),
            server=key.partition("/")[2],
            incarnation=int(os.environ.get("GPUBROKER_INCARNATION") or 0),
            queue=self.args.queue,
            class_name=self.args.class_name,
        )


def one_session(client: Client) -> str:
    """The session that is meant; Refusal where there is none, or no way to tell."""
    living = client.sessions()
    key = os.environ.get("GPUBROKER_SESSION", "")
    mine = [job for job in living if job.server == key] if key else living
    if len(mine) == 1:
        return mine[0].id
    if not mine and not key:
        none = "you have none, and this is no terminal of a Jupyter server"
        raise Refusal("session", none, _IN_A_TERMINAL)
    if not mine:
        ask = "jupyter gpubroker session request --gpus 0.5 --time 2h"
        raise Refusal("session", f"there is none for the server {key}", f"ask for one: {ask}")
    ids = ", ".join(job.id for job in mine)
    raise Refusal("session", f"there are {len(mine)} of yours", f"choose one with --id: {ids}")


def session_rows(answer: list[JobOut]) -> views.Rows:
    """Sessions as people read them."""
    columns = (
        ("session", lambda job: job["id"]),
        ("user", lambda job: job["user"]),
        ("server", lambda job: job["server"]),
        ("shape", lambda job: job["request"]["words"]),
        ("state", lambda job: job["state"]),
        ("", views.status),
    )
    return views.Rows(rows(answer), columns, "You have no sessions.")
