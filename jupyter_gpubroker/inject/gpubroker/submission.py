# SPDX-License-Identifier: BSD-3-Clause
"""What goes along with a submitted command: its code as it is now, and its environment.

Used by the magics and by the command line. Every error is a ValueError with a sentence.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

CODE_MAX = 4 * 2**20
"""Characters of one submitted file; the broker takes no more."""
CELL = "cell.py"
"""Name of a submitted cell."""

_NEVER = ("JUPYTERHUB_", "JPY_", "GPUBROKER_", "NVIDIA_")
_NEVER_EXACTLY = ("CUDA_VISIBLE_DEVICES", "MPLBACKEND")
_SECRET = ("TOKEN", "SECRET", "KEY", "PASSWORD")
_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*", re.DOTALL)
_NO_TORCH = 3
_FIND_TORCH = f"""\
import importlib.util, sys
sys.exit(0 if importlib.util.find_spec("torch") else {_NO_TORCH})
"""
_FIND_S = 20.0
_TAKES_VALUE = ("-X", "-W", "--check-hash-based-pycs")
_INJECT = str(Path(__file__).resolve().parent.parent)


@dataclass(frozen=True)
class Submission:
    """A command that is ready to be sent to the broker."""

    argv: tuple[str, ...]
    files: dict[str, str]
    """Submitted code: name -> text; arguments name it."""
    env: dict[str, str]
    dropped: tuple[str, ...]
    """Variables that do not go along."""
    cwd: str


def prepare(
    argv: Sequence[str],
    *,
    cwd: str,
    environ: Mapping[str, str],
    settings: Iterable[str] = (),
    cell: Optional[str] = None,
) -> Submission:
    """A Submission of ``argv``, or of the code ``cell`` with ``argv`` as its arguments.

    ``settings`` are NAME (goes along although its name looks like a secret's) or
    NAME=VALUE. The script that Python is to run is read now: later edits change nothing."""
    given = settings_of(settings, environ)
    env, dropped = clean_environment(environ, given)
    env.update(given)
    if cell is not None:
        # As in the notebook, the modules beside it can be imported.
        return Submission((CELL, *argv), {CELL: cell}, _import_from(cwd, env), dropped, cwd)
    if not argv:
        raise ValueError("there is nothing to run: name a script or a command")
    argv = _found(argv, environ)
    at = script_at(argv)
    if at is None:
        return Submission(tuple(argv), {}, env, dropped, cwd)
    path = Path(cwd, argv[at])
    files = {path.name: _read(path)}
    argv = (*argv[:at], path.name, *argv[at + 1 :])
    return Submission(argv, files, _import_from(str(path.parent), env), dropped, cwd)


def check_programs(sent: Submission, python: str, *, torchrun: bool) -> None:
    """ValueError where the job could only fail: it would wait, others would leave for it, and
    then there is no such program, or no torch."""
    interpreter = interpreter_of(sent.argv, python)
    program = interpreter or sent.argv[0]
    path = sent.env.get("PATH", os.defpath)
    found = os.path.join(sent.cwd, program) if "/" in program else program
    if shutil.which(found, path=path) is None:
        where = "" if "/" in program else " on PATH"
        raise ValueError(f"{program}: there is no such program{where}")
    if torchrun and interpreter is not None and not _has_torch(interpreter, sent.env):
        raise ValueError(
            f"several GPUs or nodes are started by torchrun, and {interpreter} has no torch: "
            "install it there, name another by --python, or on one node say --no-torchrun"
        )


def _has_torch(python: str, env: Mapping[str, str]) -> bool:
    """Without importing it, which takes seconds. True where nobody can tell."""
    try:
        done = subprocess.run(
            [python, "-c", _FIND_TORCH],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_FIND_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return True
    return done.returncode != _NO_TORCH


def clean_environment(
    environ: Mapping[str, str], named: Collection[str] = ()
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What a job may have of an environment, and the names it does not get.

    Nothing that belongs to this server, its Hub, its kernel or its GPUs goes along; what
    looks like a secret only if it is ``named``."""
    kept = {name: value for name, value in environ.items() if _may_go(name, named)}
    dropped = [name for name in environ if name not in kept]
    if "PYTHONPATH" in kept:
        # The engine adds ours again, and the user's kernel is not the job's place.
        kept["PYTHONPATH"] = os.pathsep.join(
            part for part in kept["PYTHONPATH"].split(os.pathsep) if not _is_ours(part)
        )
        if not kept["PYTHONPATH"]:
            del kept["PYTHONPATH"]
    return kept, tuple(sorted(dropped))


def settings_of(settings: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """``--env`` as name -> value; NAME alone takes its value from ``environ``."""
    given = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name:
            raise ValueError(f"{setting!r} is not NAME or NAME=VALUE")
        if _belongs_here(name):
            raise ValueError(f"{name} belongs to this server and never goes to a job")
        if not equals and name not in environ:
            raise ValueError(f"{name} is not set; write {name}=VALUE")
        given[name] = value if equals else environ[name]
    return given


def interpreter_of(argv: Sequence[str], python: str) -> Optional[str]:
    """The interpreter that runs ``argv``, where ``python`` is meant if it names none; None if
    another program is run, which torchrun does not start. The broker says the same."""
    if _PYTHON.fullmatch(argv[0]):
        return argv[0]
    return python if argv[0].endswith(".py") or argv[0].startswith("-") else None


def script_at(argv: Sequence[str]) -> Optional[int]:
    """Where in ``argv`` the script that Python runs stands; None if it runs none."""
    if argv and argv[0].endswith(".py"):
        return 0
    if not argv or not _PYTHON.fullmatch(argv[0]):
        return None
    at = 1
    while at < len(argv):
        argument = argv[at]
        if argument == "-" or argument.startswith(("-m", "-c")):
            return None
        if not argument.startswith("-"):
            return at
        at += 2 if argument in _TAKES_VALUE else 1
    return None


def _may_go(name: str, named: Collection[str]) -> bool:
    if _belongs_here(name):
        return False
    return name in named or not any(word in name.upper() for word in _SECRET)


def _belongs_here(name: str) -> bool:
    return name.startswith(_NEVER) or name in _NEVER_EXACTLY


def families(names: Iterable[str]) -> tuple[str, ...]:
    """The names as a person wants to read them: ``JUPYTERHUB_*`` for all that begin so."""
    short = (
        next((f"{start}*" for start in _NEVER if name.startswith(start)), name) for name in names
    )
    return tuple(dict.fromkeys(short))


def _is_ours(part: str) -> bool:
    return bool(part) and os.path.realpath(part) == _INJECT


def _found(argv: Sequence[str], environ: Mapping[str, str]) -> Sequence[str]:
    """``argv`` with the Python that is meant here and now."""
    first = argv[0]
    if not _PYTHON.fullmatch(first) or "/" in first:
        return argv
    path = shutil.which(first, path=environ.get("PATH", os.defpath))
    if path is None:
        raise ValueError(f"{first}: there is no such interpreter on PATH")
    return (path, *argv[1:])


def _read(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    if len(text) > CODE_MAX:
        raise ValueError(f"{path} is too long for submitted code: at most {CODE_MAX} characters")
    return text


def _import_from(folder: str, env: dict[str, str]) -> dict[str, str]:
    """The environment in which modules of ``folder`` can be imported, after the script's own."""
    parts = (os.path.abspath(folder), env.get("PYTHONPATH", ""))
    return {**env, "PYTHONPATH": os.pathsep.join(part for part in parts if part)}
