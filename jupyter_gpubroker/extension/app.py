# SPDX-License-Identifier: BSD-3-Clause
"""The extension itself: puts the parts into a Jupyter server and takes them out again."""

from __future__ import annotations

import asyncio
import getpass
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Unicode

from .. import provisioner
from .changes import Changes
from .finding import Finder
from .handlers import RelayHandler, StateHandler
from .kernels import Kernels
from .link import Identity, Link
from .processes import count_children
from .sidebar import Sidebar

KERNEL_EVENTS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
_ENTRY_POINT = EntryPoint(
    provisioner.NAME,
    f"{provisioner.__name__}:{provisioner.GPUBrokerProvisioner.__name__}",
    KernelProvisionerFactory.GROUP_NAME,
)
_PUT = ("GPUBROKER_URL", "GPUBROKER_SESSION", "GPUBROKER_INCARNATION", "CUDA_VISIBLE_DEVICES")
STOP_S = 5.0
"""How long the end of this server waits for the broker."""


class GPUBrokerExtension(ExtensionApp):
    """Binds the kernels of this server to its GPU session, and talks to the broker for it."""

    name = "jupyter_gpubroker"

    broker_url = Unicode(
        help="The broker: http(s)://… or unix:/path. Default: GPUBROKER_URL, then the broker of"
        " this machine, then your own."
    ).tag(config=True)
    start_broker = Bool(True, help="Start your own broker where there is no other.").tag(
        config=True
    )

    def initialize_settings(self) -> None:
        """Take over the kernels, then look for the broker as soon as the loop runs."""
        server: Any = self.serverapp
        self._environ = dict(os.environ)
        identity = identity_of(self._environ)
        finder = Finder(self.broker_url, self._environ, may_start=self.start_broker)
        self._put_environment(identity, finder.expected())
        self.changes = Changes(server.event_logger)
        self.kernels = Kernels(server.kernel_manager, self._kernels_changed)
        around = Surroundings(server, self.kernels)
        self.link = Link(finder, identity, self.kernels, around, self._changed)
        self.sidebar = Sidebar(self.link, server)
        self._running: asyncio.Future[None] | None = None
        self._take_over_kernels()
        server.io_loop.add_callback(self._begin)

    def initialize_handlers(self) -> None:
        """What browsers may ask."""
        parts = {"link": self.link, "sidebar": self.sidebar}
        self.handlers.extend(
            [
                (r"/gpubroker/state", StateHandler, parts),
                (r"/gpubroker/api/(.+)", RelayHandler, parts),
            ]
        )

    async def stop_extension(self) -> None:
        """Leave the server as it was. Without a Hub the session ends with the server."""
        if self._running is None:
            return
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._running = None
        if self.link.identity.drawn:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self.link.release()
        await self.link.close()
        KernelProvisionerFactory.instance().default_provisioner_name = self._default_provisioner
        provisioner.bind_with(None)
        self.changes.close()
        self.kernels.close()
        self._put_back_environment()

    async def _begin(self) -> None:
        self._running = asyncio.ensure_future(self.link.run())
        self.kernels.look()

    # --- kernels -----------------------------------------------------------------------

    def _take_over_kernels(self) -> None:
        provisioner.bind_with(self.kernels)
        factory = KernelProvisionerFactory.instance(parent=self.serverapp)
        # A provisioner that cannot be found hides every kernel: do not rely on metadata.
        factory.provisioners.setdefault(provisioner.NAME, _ENTRY_POINT)
        self._default_provisioner = factory.default_provisioner_name
        if self._default_provisioner == "local-provisioner":
            factory.default_provisioner_name = provisioner.NAME
        else:
            self.log.warning(
                "kernels are launched by %s: the GPU broker does not manage them",
                factory.default_provisioner_name,
            )
        server: Any = self.serverapp
        server.event_logger.add_listener(schema_id=KERNEL_EVENTS, listener=self._on_kernel_event)

    async def _on_kernel_event(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        self.kernels.look()

    def _kernels_changed(self) -> None:
        self.link.kernels_changed()

    def _changed(self, part: str, seq: int) -> None:
        parts = ("session", "jobs", "queue", "nodes") if part == "everything" else (part,)
        self.sidebar.forget()
        self.changes.add(*parts, seq=seq)

    # --- environment -------------------------------------------------------------------

    def _put_environment(self, identity: Identity, url: str) -> None:
        """What kernels and terminals inherit; the server itself sees no GPU."""
        if url:
            os.environ["GPUBROKER_URL"] = url
        os.environ["GPUBROKER_SESSION"] = identity.key
        os.environ["GPUBROKER_INCARNATION"] = str(identity.incarnation)
        os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def _put_back_environment(self) -> None:
        for name in _PUT:
            if name in self._environ:
                os.environ[name] = self._environ[name]
            else:
                os.environ.pop(name, None)


class Surroundings:
    """What else of this server says that it is used."""

    def __init__(self, server: Any, kernels: Kernels) -> None:
        """``server`` is the ServerApp."""
        self._server = server
        self._kernels = kernels

    def terminals_idle_for(self) -> float | None:
        """Seconds since a terminal showed something; ``None`` = no terminal is open."""
        now = datetime.now(UTC)
        idle = [
            (now - terminal.last_activity).total_seconds()
            for terminal in self._terminals()
            if getattr(terminal, "last_activity", None) is not None
        ]
        return max(0.0, min(idle)) if idle else None

    async def children(self) -> int:
        """Living processes that kernels or terminals started."""
        shells = [terminal.ptyproc.pid for terminal in self._terminals()]
        return await asyncio.to_thread(count_children, self._kernels.pids(), shells)

    def keep_alive(self) -> None:
        """Count as in use, also for the Hub, which asks for the last activity."""
        self._server.kernel_manager.last_kernel_activity = datetime.now(UTC)

    def _terminals(self) -> list[Any]:
        manager = self._server.web_app.settings.get("terminal_manager")
        return list(manager.terminals.values()) if manager is not None else []


def identity_of(environ: Mapping[str, str]) -> Identity:
    """As the spawner set it; without a Hub a name drawn for this process."""
    key = environ.get("GPUBROKER_SESSION")
    # Without a token of the Hub the key is that of another server, from whose terminal or
    # kernel this one was started.
    if not key or not environ.get("JUPYTERHUB_API_TOKEN"):
        return Identity(f"{getpass.getuser()}/lab-{secrets.token_hex(4)}", 1, drawn=True)
    return Identity(key, int(environ.get("GPUBROKER_INCARNATION") or 0))
