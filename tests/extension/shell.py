# SPDX-License-Identifier: BSD-3-Clause
"""A kernel of the server under test, as a notebook would use it."""

from __future__ import annotations

from jupyter_client.session import Session
from jupyter_server.serverapp import ServerApp

from ..until import until_async


class Shell:
    """Runs code in a kernel of the server, on a connection of its own."""

    def __init__(self, server: ServerApp, kernel: str) -> None:
        manager = server.kernel_manager.get_kernel(kernel)
        session = Session(
            key=manager.session.key, signature_scheme=manager.session.signature_scheme
        )
        self.client = manager.client(session=session)
        self.client.start_channels()
        self.kernel = kernel
        self._server = server
        self._ready = False

    async def run(self, code: str) -> str:
        """What the code printed."""
        if not self._ready:
            # Output published before a subscription is up is lost.
            await self.client.wait_for_ready(timeout=120)
            self._ready = True
        return await self.end(self.client.execute(code))

    async def restart(self) -> None:
        """Restart the kernel, as its user would; the next run waits for the new one."""
        await self._server.kernel_manager.restart_kernel(self.kernel)
        self._ready = False

    async def end(self, request: str) -> str:
        """Wait for the end of a request; what it printed or raised."""
        text = ""
        while True:
            message = await self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            text += content.get("text", "") + "".join(content.get("traceback", ()))
            text += content.get("data", {}).get("text/plain", "")
            if content.get("execution_state") == "idle":
                return text

    async def env(self, name: str) -> str:
        """A variable of the kernel's environment."""
        return (await self.run(f"print(__import__('os').environ.get({name!r}))")).strip()

    def close(self) -> None:
        self.client.stop_channels()

    async def held_back(self) -> None:
        """Wait until the kernel has heard that its session is parked."""
        kernels = self._server.extension_manager.extension_points["jupyter_gpubroker"].app.kernels

        def heard() -> bool:
            told = [view.told for view in kernels.views() if view.id == self.kernel]
            return any(word is not None and word.state == "parked" for word in told)

        await until_async(heard, what="the kernel to hear that it is parked")
