# SPDX-License-Identifier: BSD-3-Clause
"""One broker for all users of a workstation: two real accounts, each its own work only."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.until import until

from .brokers import SoloBroker

pytestmark = pytest.mark.root

PEER = (Path(__file__).resolve().parent / "peer.py").read_text()
JOB = (
    "import getpass, os, threading\nprint(getpass.getuser(), flush=True)\nthreading.Event().wait()"
)


class SharedBroker(SoloBroker):
    """``serve --shared`` as root."""

    mode = "--shared"


@pytest.fixture
def accounts() -> Iterator[list[pwd.struct_passwd]]:
    """Two accounts, removed afterwards."""
    needs.root()
    add = needs.program("useradd", enable="sudo apt-get install passwd")
    remove = needs.program("userdel", enable="sudo apt-get install passwd")
    names = [f"gbshare{which}{os.getpid() % 10000}" for which in "ab"]
    try:
        for name in names:
            subprocess.run([add, "-m", "-s", "/bin/sh", name], check=True)
        yield [pwd.getpwnam(name) for name in names]
    finally:
        for name in names:
            subprocess.run([remove, "-r", name], check=False, stderr=subprocess.DEVNULL)


@pytest.fixture
def shared(accounts: list[pwd.struct_passwd], short_tmp: Path) -> Iterator[SharedBroker]:
    """Up and answering."""
    short_tmp.chmod(0o711)
    broker = SharedBroker(short_tmp)
    broker.start().client()
    yield broker
    broker.close()
    for account in accounts:
        subprocess.run(["pkill", "-KILL", "-u", str(account.pw_uid)], check=False)
        until(lambda a=account: _quiet(a), what="the account's processes to end")
        shutil.rmtree(Path(account.pw_dir) / ".local", ignore_errors=True)


def _quiet(account: pwd.struct_passwd) -> bool:
    return subprocess.run(["pgrep", "-u", str(account.pw_uid)], check=False).returncode == 1


def ask(
    broker: SharedBroker, account: pwd.struct_passwd, method: str, path: str, body: Any = None
) -> tuple[int, Any]:
    """One request as an account; status and answer."""
    python = needs.program("python3", enable="sudo apt-get install python3", folders="/usr/bin")
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else python
    more = [json.dumps(body)] if body is not None else []
    done = subprocess.run(
        [python, "-c", PEER, str(broker.socket), method, f"/api/v1{path}", *more],
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    status, _, answer = done.stdout.partition("\n")
    return int(status), json.loads(answer)


def test_each_account_has_its_own_work_and_nobody_elses(
    shared: SharedBroker, accounts: list[pwd.struct_passwd]
) -> None:
    ana, bo = accounts
    submit = {
        "argv": ["python3", "job.py"],
        "files": {"job.py": JOB},
        "cwd": "/",
        "env": {"PATH": "/usr/bin:/bin"},
        "torchrun": False,
        "request": {"gpus": 1, "time": "10m"},
    }
    status, job = ask(shared, ana, "POST", "/jobs", submit)
    assert status == 201, job
    assert job["user"] == ana.pw_name
    path = f"/jobs/{job['id']}"

    def printed() -> str:
        return str(ask(shared, ana, "GET", f"{path}/logs")[1].get("text", ""))

    assert until(printed, what="the job to print") == f"{ana.pw_name}\n"
    for method, other in (
        ("GET", path),
        ("GET", f"{path}/explain"),
        ("GET", f"{path}/logs"),
        ("POST", f"{path}/cancel"),
        ("POST", f"{path}/extend"),
    ):
        body = {"time": "1h"} if other.endswith("extend") else None
        assert ask(shared, bo, method, other, body)[0] == 404, other
    assert ask(shared, bo, "GET", "/jobs")[1] == []
    assert ask(shared, ana, "GET", path)[1]["state"] == "running"
    assert ask(shared, ana, "GET", "/me")[1]["admin"] is False
    folder = Path(ana.pw_dir) / ".local/share/jupyter-gpubroker/jobs" / job["id"]
    assert folder.stat().st_uid == ana.pw_uid
    assert ask(shared, ana, "POST", f"{path}/cancel")[0] == 200
    until(lambda: ask(shared, ana, "GET", path)[1]["state"] == "cancelled", what="the end")
