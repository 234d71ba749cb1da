# SPDX-License-Identifier: BSD-3-Clause
"""The shim: one small process that watches one part of a job and outlives the broker.

::

    python -ISE shim.py DIR        (started by ``engines.parts`` only)

It imports the standard library only, and nothing of the user's reaches it: command,
environment and submitted files come as one line of JSON on stdin (``Spec``), never as its
own arguments or environment, which others could read or a loader would obey as root.

A dialogue on stdin and stdout keeps a gang together: the shim says ``ready`` when
everything short of exec has worked, and execs on ``go``. Without ``go`` (the broker died)
it leaves, and nothing ever ran. Other answers: ``running`` (after ``go``), ``already`` (the
part was started before, or must never be), ``busy``, ``refused TEXT``.

Files in DIR, each written whole (temporary name, fsync, rename):

``lock``
    flocked by the shim that is responsible for the part.
``run.json``
    ``shim`` and ``main`` as [pid, start], ``boot``, ``time`` (ns); written before exec. A
    part that has it is never started again.
``exit.json``
    ``code`` and ``time`` (ns); written when the *whole tree* is gone, also children that
    left the session. ``code`` null: the part must never start.

Signals to the shim: HUP, INT, QUIT, TERM, USR1 and USR2 go on to the process group of the
main process; ``KILL_TREE`` kills everything below. When the main process has ended, what it
left behind is killed.
"""

from __future__ import annotations

import binascii
import ctypes
import fcntl
import json
import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing itself would cost a quarter of the shim's start
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypedDict

    class Account(TypedDict):
        """The account to become."""

        name: str
        uid: int
        gid: int

    class Spec(TypedDict):
        """What to run."""

        argv: list[str]
        env: dict[str, str]
        cwd: str
        folder: str
        """Made 0700 as the job's user, with ``spool`` in it."""
        log: str
        """File in ``folder`` that takes stdout and stderr."""
        files: dict[str, str]
        """Written to ``folder``/code: name -> content in base64."""
        account: Account | None
        """None: stay who we are."""


KILL_TREE = signal.SIGRTMIN
FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_WATCHED = {signal.SIGCHLD, KILL_TREE, *FORWARDED}
_PR_SET_CHILD_SUBREAPER = 36
_LOCK_TRIES, _LOCK_PAUSE = 500, 0.02
_FIRST_PAUSE, _LONGEST_PAUSE, _FOREVER = 0.02, 1.0, 3600.0
"""Seconds between two rounds of killing; a round comes at once when a child ends."""
_PRIVATE_DIR, _PRIVATE_FILE, _UMASK = 0o700, 0o600, 0o077
_EXEC_FAILED = 127


def put(path: str, facts: dict[str, Any]) -> None:
    """Write ``facts`` as JSON at ``path``: whole and durable, or not at all."""
    draft = f"{path}.{os.getpid()}.new"
    with open(draft, "w", encoding="ascii") as file:
        json.dump(facts, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def claim(where: str) -> int | None:
    """Lock the part at ``where`` until the descriptor is closed; ``None`` if another has it."""
    fd = os.open(f"{where}/lock", os.O_RDWR | os.O_CREAT, _PRIVATE_FILE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def decided(where: str) -> bool:
    """True if the part was started, or must never be."""
    return os.path.exists(f"{where}/run.json") or os.path.exists(f"{where}/exit.json")


def main(where: str) -> None:
    """Leave the caller's session, then prepare, wait for ``go`` and watch."""
    os.setsid()
    if os.fork():
        os._exit(0)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Blocked before anything is started: a signal that comes early waits for _watch().
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    stdin = os.fdopen(os.dup(0), "rb")
    spec: Spec = json.loads(stdin.readline())
    refusal = _responsible(where)
    if refusal:
        _say(refusal)
        return
    pid, gate, refusal = _prepare(spec)
    _say(f"refused {refusal}" if refusal else "ready")
    if refusal or stdin.readline() != b"go\n":
        os.close(gate)
        os.waitpid(pid, 0)
        return
    _record_start(where, pid)
    os.write(gate, b"x")
    os.close(gate)
    _say("running")
    stdin.close()
    _point(os.open(os.devnull, os.O_RDWR), 0, 1)
    code = _watch(pid)
    put(f"{where}/exit.json", {"code": code, "time": time.time_ns()})


def _responsible(where: str) -> str:
    """Take the part for this process (until it ends); else the reason why not."""
    for _ in range(_LOCK_TRIES):
        if decided(where):
            return "already"
        if claim(where) is not None:
            return "already" if decided(where) else ""
        time.sleep(_LOCK_PAUSE)
    return "busy"


def _say(text: str) -> None:
    try:
        os.write(1, text.replace("\n", " ").encode(errors="replace") + b"\n")
    except OSError:
        return  # the broker is gone; the files say it all


def _point(source: int, *targets: int) -> None:
    for target in targets:
        os.dup2(source, target)
    os.close(source)


def _prepare(spec: Spec) -> tuple[int, int, str]:
    """Fork the main process as far as exec: (pid, the pipe that lets it go on, refusal)."""
    heard, tell = os.pipe()
    wait, gate = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(heard)
        os.close(gate)
        _child(spec, tell, wait)
    os.close(tell)
    os.close(wait)
    with os.fdopen(heard, "rb") as file:
        said = file.read().decode(errors="replace")
    return pid, gate, "" if said == "ready" else said or "the part died while it was prepared"


def _child(spec: Spec, tell: int, wait: int) -> NoReturn:
    """Do as the job's user all that may fail, report, wait to be let go, exec.

    From the change of account on nothing may be imported, not even by the standard library:
    the user may not be able to read this Python."""
    try:
        _become(spec["account"])
        _furnish(spec)
    except Exception as error:  # whatever it is, it is the reason
        os.write(tell, str(error).encode(errors="replace") or b"?")
        os._exit(1)
    os.write(tell, b"ready")
    os.close(tell)
    if os.read(wait, 1) != b"x":
        os._exit(1)
    try:
        # Python ignores some signals, nohup another; exec would keep that.
        for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        _exec(spec["argv"], spec["env"])
    except Exception as error:
        os.write(2, f"cannot run {spec['argv'][0]}: {error}\n".encode(errors="replace"))
    os._exit(_EXEC_FAILED)


def _exec(argv: list[str], env: dict[str, str]) -> None:
    """Become the first program of that name on the PATH of ``env``; OSError, ValueError.

    ``os.execvpe`` would do, but for an import."""
    folders = [""] if "/" in argv[0] else env.get("PATH", os.defpath).split(":")
    reason: OSError | None = None
    for folder in folders:
        try:
            os.execve(os.path.join(folder, argv[0]), argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError) as error:
            reason = reason or error
        except OSError as error:
            reason = error
    if reason:
        raise reason


def _become(account: Account | None) -> None:
    os.setsid()
    os.umask(_UMASK)
    if account:
        os.initgroups(account["name"], account["gid"])
        os.setgid(account["gid"])
        os.setuid(account["uid"])


def _furnish(spec: Spec) -> None:
    """The folder, its spool and code, stdin, the log and the working directory."""
    folder = spec["folder"]
    for path in (folder, f"{folder}/spool"):
        os.makedirs(path, _PRIVATE_DIR, exist_ok=True)
        os.chmod(path, _PRIVATE_DIR)
    if spec["files"]:
        os.makedirs(f"{folder}/code", _PRIVATE_DIR, exist_ok=True)
    for name, content in spec["files"].items():
        draft = f"{folder}/code/.{name}.{os.getpid()}.new"
        with open(draft, "wb") as file:
            file.write(binascii.a2b_base64(content))
        os.rename(draft, f"{folder}/code/{name}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    log = os.open(f"{folder}/{spec['log']}", flags, _PRIVATE_FILE)
    os.chdir(spec["cwd"] or folder)
    _point(os.open(os.devnull, os.O_RDONLY), 0)
    _point(log, 1, 2)


def _started(pid: int) -> int:
    return int(_stat(pid)[19])


def _stat(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The command may hold blanks and brackets; the last bracket ends it.
        return file.read().rpartition(b")")[2].split()


def _record_start(where: str, pid: int) -> None:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    shim, start = os.getpid(), _started(os.getpid())
    facts = {"shim": [shim, start], "main": [pid, _started(pid)], "boot": boot}
    put(f"{where}/run.json", {**facts, "time": time.time_ns()})


def _watch(main_pid: int) -> int:
    """Until no process of the tree is left; the exit code of the main process."""
    code: int | None = None
    pause = _FOREVER
    while True:
        info = signal.sigtimedwait(_WATCHED, pause)
        signum = info.si_signo if info else signal.SIGCHLD
        if signum in FORWARDED and code is None:
            os.killpg(main_pid, signum)  # not reaped yet, so the group is still its own
        empty, ended = _reap(main_pid)
        code = ended if code is None else code
        if empty:
            assert code is not None, "the main process is a child of the shim"
            return code
        if pause < _FOREVER or code is not None or signum == KILL_TREE:
            pause = min(2 * pause, _LONGEST_PAUSE) if pause < _FOREVER else _FIRST_PAUSE
            _kill_below(os.getpid())


def _reap(main_pid: int) -> tuple[bool, int | None]:
    """Collect what has ended: (no child is left, exit code of the main process if it ended).

    Orphans of the tree become children of the shim: no child left means an empty tree."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True, code
        if pid == 0:
            return False, code
        if pid == main_pid:
            code = os.waitstatus_to_exitcode(status)


def _kill_below(root: int) -> None:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                children.setdefault(int(_stat(int(name))[1]), []).append(int(name))
            except OSError:
                continue  # it ended meanwhile
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    for pid in found[1:]:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue  # it ended meanwhile, or is no longer ours to kill


if __name__ == "__main__":
    main(sys.argv[1])
