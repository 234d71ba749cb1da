# SPDX-License-Identifier: BSD-3-Clause
"""What each part of a hosted attempt runs: command, environment, account."""

from __future__ import annotations

import base64
import os
import pwd
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import inject
from ..devices import Devices
from . import Launch, StartRefused, torchrun
from .folder import CODE, SPOOL, node_log, rank_log
from .records import Record

if TYPE_CHECKING:
    from .shim import Account, Spec

_DEFAULTS = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}


def check(launch: Launch) -> None:
    """StartRefused for a Launch that can run nowhere."""
    if not launch.argv:
        raise StartRefused("argv: there is nothing to run")
    if not launch.placement:
        raise StartRefused("placement: there is no node to run on")
    if not os.path.isabs(launch.folder):
        raise StartRefused(f"folder: {launch.folder!r} is not an absolute path")
    for name in launch.files:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise StartRefused(f"files: {name!r} is not a plain file name")


def account_of(user: str) -> Account:
    """The account of that name; StartRefused if there is none."""
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise StartRefused(
            f"user: there is no account {user!r} on this machine"
            " (an administrator can make it, or set run_as: self)"
        ) from None
    return {"name": entry.pw_name, "uid": entry.pw_uid, "gid": entry.pw_gid}


def spec(record: Record, launch: Launch, devices: Devices, node: int) -> Spec:
    """What the part on the node of that rank runs, as who we are; DeviceError."""
    files = launch.files if node == 0 else {}
    return {
        "argv": list(_argv(record, launch, node)),
        "env": dict(_environment(record, launch, devices, node)),
        "cwd": launch.cwd,
        "folder": record.folder,
        "log": node_log(node) if record.torchrun else rank_log(0),
        "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
        "account": None,
    }


def _argv(record: Record, launch: Launch, node: int) -> tuple[str, ...]:
    code = {name: f"{record.folder}/{CODE}/{name}" for name in launch.files}
    argv = tuple(code.get(argument, argument) for argument in launch.argv)
    if not record.torchrun:
        return argv
    counts = [sum(share.node == name for share in record.placement) for name in record.nodes]
    ranks = (record.folder, *argv)
    command = torchrun.command(record.key, ranks, node=node, counts=counts, port=record.port)
    return (launch.python or sys.executable, *command)


def _environment(record: Record, launch: Launch, devices: Devices, node: int) -> Mapping[str, str]:
    """The job's own settings over our defaults, and the lease over both."""
    env = {**_DEFAULTS, **_who(record.uid)}
    if record.torchrun:
        env |= {**torchrun.ENVIRONMENT, **torchrun.ONE_MACHINE}
    env |= launch.env
    if launch.user and record.uid != os.geteuid():
        env |= _who(record.uid)
    env.pop("GPUBROKER_SESSION", None)  # or its memory would be booked on that session
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (inject.FOLDER, env.get("PYTHONPATH"))))
    name = record.nodes[node]
    return {
        **env,
        **devices.environment(tuple(share for share in record.placement if share.node == name)),
        "GPUBROKER_JOB": record.key.job,
        "GPUBROKER_ATTEMPT": str(record.key.attempt),
        "GPUBROKER_SPOOL": f"{record.folder}/{SPOOL}",
    }


def _who(uid: int) -> Mapping[str, str]:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return {}
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
