# SPDX-License-Identifier: BSD-3-Clause
"""Configuration -> Setup. What is missing becomes a sentence, never an exit."""

from __future__ import annotations

import os
import pwd
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .. import policy as policies
from ..core.model import Policy, Refusal, StageName
from ..devices import DeviceError, Devices
from ..devices.choose import open_devices
from ..devices.nvml import NvmlDevices
from ..engines.local import LocalEngine
from ..store import Store
from .setup import Setup

if TYPE_CHECKING:
    from .serve import ServeApp

PARKS = (StageName.PARK, StageName.RESTART)
RESTARTS = (StageName.RESTART,)


def make_setup(app: ServeApp, store: Store) -> Setup:
    """All the real things of one broker."""
    problems: dict[str, str] = {}
    state = Path(app.state_dir)
    if not app.store.startswith("memory"):
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    devices = _devices(app, state, problems)
    run_as = _run_as(app)
    mode: Literal["user", "self"] = "user" if run_as == "user" else "self"
    engine = LocalEngine(devices, state / "local", broker_id(state), mode, time.time)
    policy, document = _policy(app, problems)
    shared = not app.solo
    return Setup(
        store=store,
        engines={engine.name: engine},
        devices=devices,
        ladders={engine.name: PARKS if devices.caps.parks else RESTARTS},
        policy=policy,
        policy_document=document,
        jobs_folder=_jobs_folder(app.jobs_dir),
        parse_policy=policies.parse,
        account=_accounts(run_as),
        isolation="no isolation between users" if shared and run_as == "self" else "",
        problems=problems,
    )


def _devices(app: ServeApp, state: Path, problems: dict[str, str]) -> Devices:
    try:
        devices = open_devices(app.devices, state / "simulated")
    except DeviceError as error:
        problems["devices"] = str(error)
        return NvmlDevices()
    if isinstance(devices, NvmlDevices) and devices.reason:
        problems["devices"] = devices.reason
    return devices


def _policy(app: ServeApp, problems: dict[str, str]) -> tuple[Policy, str]:
    if not app.policy_file:
        return policies.default(), policies.DEFAULT_DOCUMENT
    try:
        document = Path(app.policy_file).read_text(encoding="utf-8")
        return policies.parse(document), document
    except (OSError, UnicodeDecodeError, Refusal) as error:
        problems["policy"] = f"{app.policy_file} is not used: {error}"
        return policies.default(), policies.DEFAULT_DOCUMENT


def broker_id(state: Path) -> str:
    """Marks what engines run for the broker of this state folder; drawn once."""
    path = state / "broker-id"
    try:
        with open(path, "x", encoding="ascii", opener=_private) as file:
            file.write(secrets.token_hex(8))
    except FileExistsError:
        pass
    return path.read_text(encoding="ascii")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


# --- accounts ---------------------------------------------------------------------------


def _run_as(app: ServeApp) -> str:
    """``user``, ``self``, or empty: several users share one account and nobody said so."""
    if app.run_as:
        return str(app.run_as)
    if os.geteuid() == 0 and not app.solo:
        return "user"
    return "self" if app.solo else ""


def _accounts(run_as: str) -> Callable[[str], str]:
    """user -> the account its jobs run as (empty = the broker's own)."""

    def account(user: str) -> str:
        if run_as == "self":
            return ""
        if not run_as:
            raise Refusal(
                "run_as",
                "jobs of all users would run as the broker's own account",
                "an admin has to set ServeApp.run_as = 'self' if that is meant",
            )
        try:
            pwd.getpwnam(user)
        except KeyError:
            raise Refusal(
                "user", f"this machine has no account {user!r}", "jobs run as their user's account"
            ) from None
        return user

    return account


def _jobs_folder(jobs_dir: str) -> Callable[[str], Path]:
    def folder(account: str) -> Path:
        if jobs_dir:
            return Path(jobs_dir) / account if account else Path(jobs_dir)
        home = Path(pwd.getpwnam(account).pw_dir) if account else Path.home()
        return home / ".local" / "share" / "jupyter-gpubroker" / "jobs"

    return folder
