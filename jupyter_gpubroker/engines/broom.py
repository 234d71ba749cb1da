# SPDX-License-Identifier: BSD-3-Clause
"""Removes folders of jobs as their user: what a link there leads to is that user's own business.

::

    python -ISE broom.py       {"uid": UID, "folders": [PATH, ...]} on stdin

Answers with those folders that are not there any more, as JSON. It imports the standard
library only; from the change of account on it imports nothing, for the user may not be able
to read this Python.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence

_PATIENCE_S = 600.0
_NOBODY = 65534


def sweep(uid: int, folders: Sequence[str]) -> Sequence[str]:
    """Remove the folders of that user; those that are gone. OSError if it could not be tried."""
    asked = json.dumps({"uid": uid, "folders": folders})
    command = [sys.executable, "-ISE", __file__]
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, text=True, timeout=_PATIENCE_S, check=True,
            cwd="/", env={},
        )  # fmt: skip
        gone: Sequence[str] = json.loads(done.stdout)
    except subprocess.SubprocessError as error:
        raise OSError(f"old folders of the account {uid} cannot be removed: {error}") from error
    return gone


def _become(uid: int) -> None:
    if uid == os.geteuid():
        return
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        gid = _NOBODY
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def _remove(folder: str) -> bool:
    """True if the folder, or one that is the job's own, is not there any more."""
    try:
        facts = os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        return True
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        _unlock(folder)
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        return False
    try:
        os.rmdir(os.path.dirname(folder))  # the job's, after its last attempt
    except OSError:
        return True
    return True


def _unlock(folder: str) -> None:
    """A program may have made folders in which nothing can be removed."""
    os.chmod(folder, stat.S_IRWXU)
    for root, names, _files in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            if not os.path.islink(path):
                os.chmod(path, stat.S_IRWXU)


def _main() -> None:
    asked = json.load(sys.stdin)
    _become(asked["uid"])
    json.dump([folder for folder in asked["folders"] if _remove(folder)], sys.stdout)


if __name__ == "__main__":
    _main()
