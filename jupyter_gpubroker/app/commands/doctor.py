# SPDX-License-Identifier: BSD-3-Clause
"""``doctor``: look at what this machine and its broker have, one line each, with a remedy."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from jupyter_core.paths import jupyter_config_path, jupyter_path
from packaging.requirements import Requirement

from ... import hub
from ...client import BrokerError, Client, Refusal, Unavailable
from ...core.model import Conflict
from ...wire import HealthOut
from ...wire.endpoints import USE
from .command import FAILED, NO_TOKEN, OK, UNREACHABLE, Command

NAME = "jupyter-gpubroker"
_PARTS = ("jupyterhub", "jupyterlab", "jupyter-server", "jupyter-client")
_STREAM_PATIENCE_S = 10.0
_INSTALL = "install the wheel into the environment that jupyter lab runs in: docs/how-to/install.md"
_DEGRADED = "what to do about it: docs/how-to/troubleshoot.md; more: the broker's log"
_NO_BROKER = (
    "of a Hub: sudo jupyter gpubroker doctor --hub STATE_DIR, on its machine; of your own: "
    "start JupyterLab; another one: --url, or GPUBROKER_URL"
)
_NO_HUB_BROKER = "is it started? see the Hub's log, or systemctl status jupyter-gpubroker"
_NO_DEVICES = (
    "install NVIDIA's driver where the broker runs, see that nvidia-smi shows the GPUs, and "
    "restart the broker; to try it without GPUs: GPUBROKER_SIMULATE=2x4 where it is started"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        heading = f"{'ok  ' if self.ok else 'FAIL'}  {self.name}: {self.text}"
        lines = [*heading.splitlines(), *filter(None, [self.remedy])]
        return "\n      ".join(lines)


class DoctorApp(Command):
    """Look for what is missing: versions, sidebar, broker, identity, GPUs, the Hub.

    Exit code 0 if all is well, 1 if something is not, 3 if no broker answers."""

    word = "doctor"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        parser.add_argument(
            "--hub", default="", metavar="STATE_DIR", help="also the Hub configured with it"
        )

    def run(self) -> int:
        """See the class."""
        findings = [*installation(), *self._broker(), *_hub(self.args.hub)]
        self.show(
            {"findings": [asdict(found) for found in findings]}, "\n".join(map(str, findings))
        )
        wrong = [found.name for found in findings if not found.ok]
        if not wrong:
            return OK
        return UNREACHABLE if "broker" in wrong else FAILED

    def client(self) -> Client:
        """With --hub the broker of that Hub, whatever this terminal knows."""
        return Client(hub.broker_of(self.args.hub)) if self.args.hub else super().client()

    def _broker(self) -> Iterator[Finding]:
        try:
            with self.client() as client:
                yield from broker(client)
        except Refusal as refusal:
            yield Finding("broker", ok=False, text=str(refusal))
        except Unavailable as error:
            remedy = _NO_HUB_BROKER if self.args.hub else _NO_BROKER
            yield Finding("broker", ok=False, text=str(error), remedy=remedy)


# --- this environment -------------------------------------------------------------------


def installation() -> Iterator[Finding]:
    """What is installed here, and in which versions."""
    wanted = _wanted()
    yield _version("python", platform.python_version(), wanted.get("python", ">=3.11"))
    for name in _PARTS:
        try:
            yield _version(name, version(name), wanted.get(name, ""))
        except PackageNotFoundError:
            yield Finding(name, ok=False, text="is not installed", remedy=f"pip install {name}")
    yield _installed("sidebar", _first(jupyter_path("labextensions"), f"{NAME}/package.json"))
    enabled = "jupyter_server_config.d/jupyter_gpubroker.json"
    yield _installed("server extension", _first(jupyter_config_path(), enabled))


def _installed(name: str, path: str) -> Finding:
    return Finding(name, bool(path), path or "is not installed", "" if path else _INSTALL)


def _wanted() -> dict[str, str]:
    """Distribution -> version range, from our own metadata."""
    try:
        found = [Requirement(text) for text in requires(NAME) or ()]
    except PackageNotFoundError:  # run from a checkout
        return {}
    return {item.name: str(item.specifier) for item in found if item.marker is None}


def _version(name: str, found: str, wanted: str) -> Finding:
    fits = Requirement(f"{name}{wanted}").specifier.contains(found, prereleases=True)
    remedy = "" if fits else f"pip install '{name}{wanted}'"
    return Finding(name, fits, found if fits else f"{found}, {wanted} is needed", remedy)


def _first(folders: list[str], name: str) -> str:
    """The first of the files that is there; empty = none."""
    paths = (Path(folder) / name for folder in folders)
    return next((str(path) for path in paths if path.is_file()), "")


# --- the broker -------------------------------------------------------------------------


def broker(client: Client) -> Iterator[Finding]:
    """What a broker says, from being there to the last GPU."""
    health = client.health()
    yield Finding("broker", ok=True, text=f"answers at {client.address.url}")
    yield from _health(health)
    try:
        who = client.me()
        server = f", server {who.server}" if who.server else ""
        admin = ", admin" if who.admin else ""
        yield Finding("identity", ok=True, text=f"{who.user or who.kind}{admin}{server}")
        yield _nodes(client)
        yield _stream(client)
    except (BrokerError, Refusal, Conflict) as error:
        remedy = f"{NO_TOKEN}; its role needs the scope {USE}"
        yield Finding("identity", ok=False, text=str(error), remedy=remedy)


def _health(health: HealthOut) -> Iterator[Finding]:
    if not health.problems:
        yield Finding("health", ok=True, text=health.status)
    for problem in health.problems:
        remedy = _NO_DEVICES if "NVIDIA driver" in problem else _DEGRADED
        yield Finding("health", ok=False, text=problem, remedy=remedy)
    try:
        here = version(NAME)
    except PackageNotFoundError:
        return
    same = health.version == here
    remedy = "" if same else "install the same version here and where the broker runs"
    yield Finding("broker's version", same, f"{health.version}, here {here}", remedy)


def _nodes(client: Client) -> Finding:
    nodes = client.nodes()
    devices = [device for node in nodes for device in node.devices]
    usable = sum(device.usable for device in devices)
    some = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    text = f"{some}, {len(devices)} GPUs, {usable} usable"
    notes = [*(node.note for node in nodes), *(device.note for device in devices)]
    text += "".join(f"; {note}" for note in dict.fromkeys(notes) if note)
    remedy = "" if usable else "nvidia-smi has to show them where the broker runs"
    return Finding("GPUs", usable > 0, text, remedy)


def _stream(client: Client) -> Finding:
    """A proxy between us that holds back what is small would break the sidebar."""
    events = client.events(patience=_STREAM_PATIENCE_S)
    first = next(events)
    return Finding("event stream", first.event == "hello", f"passes, at event {first.seq}")


def _hub(state_dir: str) -> Iterator[Finding]:
    if not state_dir:
        return
    wrong = hub.check(state_dir)
    for text in wrong:
        yield Finding("Hub", ok=False, text=text)
    if not wrong:
        yield Finding("Hub", ok=True, text="is as it was configured")
