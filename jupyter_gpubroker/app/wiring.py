# SPDX-License-Identifier: BSD-3-Clause
"""Configuration -> Setup. What is missing becomes a sentence, never an exit."""

from __future__ import annotations

import os
import pwd
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .. import policy as policies
from ..core.model import Policy, Refusal
from ..devices import DeviceError, Devices
from ..devices.choose import open_devices
from ..devices.nvml import NvmlDevices
from ..engines.local import LocalEngine
from ..store import Loaded, Store, StoreError
from ..store.lock import MemoryLock, WriterLock, open_store
from ..store.memory import MemoryStore
from .setup import Setup, steady_clock

if TYPE_CHECKING:
    from .serve import ServeApp


def make_setup(app: ServeApp) -> tuple[Setup, WriterLock]:
    """All the real things of one broker, and the lock to hold before its store is opened."""
    problems: dict[str, str] = {}
    state = _state(Path(app.state_dir), problems)
    store, lock = _store(app.store, problems)
    devices = _devices(app, state, problems)
    run_as = _run_as(app, problems)
    mode: Literal["user", "self"] = "user" if run_as == "user" else "self"
    clock = steady_clock()
    engine = LocalEngine(devices, state / "local", broker_id(state), mode, clock)
    policy, document = _policy(app, problems)
    known = app.policy_file and "policy" not in problems
    setup = Setup(
        store=store,
        engines={engine.name: engine},
        devices=devices,
        policy=policy,
        policy_document=document,
        policy_file=app.policy_file if known else "",
        jobs_folder=_jobs_folder(app.jobs_dir),
        parse_policy=policies.parse,
        account=_accounts(run_as),
        isolation="No isolation between users." if run_as == "self" and not app.solo else "",
        problems=problems,
        clock=clock,
    )
    return setup, lock


def _state(wanted: Path, problems: dict[str, str]) -> Path:
    """The state folder; where it cannot be made, a passing one and a sentence."""
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(wanted, os.W_OK | os.X_OK):
            return wanted
        text = "is not writable"
    except OSError as error:
        text = f"cannot be made: {error.strerror}"
    problems["state"] = f"{wanted} {text}: set ServeApp.state_dir"
    return Path(tempfile.mkdtemp(prefix="jupyter-gpubroker-"))


class _NoStore(MemoryStore):
    """Stands for a store that cannot even be named: it never opens."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def open(self) -> Loaded:
        """Always a StoreError with the sentence."""
        raise StoreError(self._text)


def _store(url: str, problems: dict[str, str]) -> tuple[Store, WriterLock]:
    if "state" in problems:
        return _NoStore(problems["state"]), MemoryLock()
    try:
        return open_store(url)
    except StoreError as error:
        return _NoStore(str(error)), MemoryLock()


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
        return _default(app)
    try:
        document = Path(app.policy_file).read_text(encoding="utf-8")
        return policies.parse(document), document
    except (OSError, UnicodeDecodeError, Refusal) as error:
        problems["policy"] = f"{app.policy_file} is not used: {error}"
        return _default(app)


def _default(app: ServeApp) -> tuple[Policy, str]:
    """Nobody else's notebook needs room where one person has all GPUs."""
    document = policies.DEFAULT_DOCUMENT
    if app.solo:
        document = document.replace("reserve: auto", "reserve: off ", 1)
    return policies.parse(document), document


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


def _run_as(app: ServeApp, problems: dict[str, str]) -> str:
    """``user``, ``self``, or empty: several users share one account and nobody said so."""
    root = os.geteuid() == 0
    if app.run_as == "user" and not root:
        problems["run_as"] = "run_as 'user' needs a broker that runs as root"
        return ""
    if app.run_as:
        return str(app.run_as)
    if app.solo:
        return "self"
    return "user" if root else ""


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
