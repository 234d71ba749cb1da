# SPDX-License-Identifier: BSD-3-Clause
"""One rank of a torchrun launch: its log, and how it ended.

::

    torchrun ... rank.py FOLDER SCRIPT [ARGS]      (or: FOLDER -m MODULE [ARGS])

Torchrun runs this file with the user's interpreter in place of the script, so it imports
the standard library only and works on Python >= 3.9. Only here is the *global* rank known
before the first line is printed. The script runs as a process of its own, ``__main__`` as
ever, with stdout and stderr in ``FOLDER/rank-<RANK>.log``. How it ended is written to
``FOLDER/spool/exit-<RANK>.json`` (``code``, ``time`` in ns) before torchrun learns of it,
which tells the rank that failed first from those that failed with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time

_FORWARDED = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
_WATCHED = {signal.SIGCHLD, *_FORWARDED}
_PR_SET_PDEATHSIG = 1
_PRIVATE_FILE = 0o600


def main(folder: str, argv: list[str]) -> None:
    """Run ``argv`` with this interpreter and end as it ended."""
    rank = int(os.environ["RANK"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    log = os.open(f"{folder}/rank-{rank}.log", flags, _PRIVATE_FILE)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    code = _wait(_start(argv))
    _record(f"{folder}/spool/exit-{rank}.json", code)
    _end(code)


def _start(argv: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _exec(argv)
    # Both sides set the group, so that it is there before either goes on.
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    return pid


def _exec(argv: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two; exec keeps that
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    os.execv(sys.executable, [sys.executable, "-u", *argv])  # noqa: S606


def _wait(pid: int) -> int:
    """Pass signals on until the script ends; its exit code.

    Older torch signals one process, newer the group of it: the script is in a group of its
    own and gets each signal once, from here."""
    while True:
        signum = signal.sigwait(_WATCHED)
        if signum != signal.SIGCHLD:
            os.killpg(pid, signum)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


def _record(path: str, code: int) -> None:
    with open(f"{path}.new", "w", encoding="ascii") as file:
        json.dump({"code": code, "time": time.time_ns()}, file)
    os.rename(f"{path}.new", path)


def _end(code: int) -> None:
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the script has left its own
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
