# SPDX-License-Identifier: BSD-3-Clause
"""Launch each kernel bound to the lease of its server, or to no GPU at all.

The server's extension knows the lease; it registers itself with ``bind_with``. Nothing
here waits or asks anybody. Imported by Jupyter for every kernelspec: keep it light.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from .inject import FOLDER

NAME = "gpubroker-provisioner"
"""Its entry point in the group jupyter_client.kernel_provisioners."""
MAGICS = "--IPKernelApp.extra_extensions=gpubroker"

_LAUNCHERS = ("ipykernel_launcher", "ipykernel")


class Binder(Protocol):
    """Who knows the lease: the extension of this server."""

    def environment(self, kernel: str) -> Mapping[str, str]:
        """What binds a kernel that is launched now; asked at each launch and restart."""
        ...

    def launched(self, kernel: str, pid: int) -> None:
        """The kernel's process was started with the environment given last."""
        ...

    def ended(self, kernel: str) -> None:
        """The kernel is gone and will not be restarted."""
        ...


class _Unbound:
    """Until an extension registers there is no lease: an explicit empty set."""

    def environment(self, kernel: str) -> Mapping[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ""}

    def launched(self, kernel: str, pid: int) -> None:
        """Nobody keeps a record."""

    def ended(self, kernel: str) -> None:
        """Nobody keeps a record."""


_binder: list[Binder] = [_Unbound()]


def bind_with(binder: Binder | None) -> None:
    """Ask this binder from now on; ``None`` = no GPU for any kernel."""
    _binder[0] = binder or _Unbound()


class GPUBrokerProvisioner(LocalProvisioner):
    """A local kernel that sees the GPUs of its server's lease."""

    injected = False
    """Whether the kernel loads the magics by its command line."""

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Add the lease's environment and the magics; also on each restart."""
        kwargs = await super().pre_launch(**kwargs)
        env = {**kwargs["env"], **_binder[0].environment(self.kernel_id)}
        env["GPUBROKER_KERNEL"] = self.kernel_id
        env["PYTHONPATH"] = with_inject(env.get("PYTHONPATH", ""))
        self.injected = is_ipykernel(kwargs["cmd"])
        cmd = [*kwargs["cmd"], MAGICS] if self.injected else kwargs["cmd"]
        return {**kwargs, "env": env, "cmd": cmd}

    async def post_launch(self, **kwargs: Any) -> None:
        """Tell the extension which process it is."""
        await super().post_launch(**kwargs)
        if self.pid is not None:
            _binder[0].launched(self.kernel_id, self.pid)

    async def cleanup(self, restart: bool = False) -> None:
        """Tell the extension that it is gone; a restart keeps the lease."""
        await super().cleanup(restart)
        if not restart:
            _binder[0].ended(self.kernel_id)


def is_ipykernel(argv: Sequence[str]) -> bool:
    """True if an argument *is* ipykernel: a shell command that contains it swallows ours."""
    return any(argument in _LAUNCHERS for argument in argv)


def with_inject(path: str) -> str:
    """This PYTHONPATH with our folder at its end, once."""
    parts = [part for part in path.split(os.pathsep) if part and part != FOLDER]
    return os.pathsep.join([*parts, FOLDER])
