# SPDX-License-Identifier: BSD-3-Clause
"""Cells in a kernel of a Jupyter server, over the kernel's own connection."""

from __future__ import annotations

from jupyter_client.blocking.client import BlockingKernelClient

from tests.ui.lab import Lab
from tests.until import until

PATIENCE_S = 120


class Kernel:
    """A Python kernel that the server started."""

    def __init__(self, lab: Lab) -> None:
        model = lab.request("POST", "api/kernels", {"name": "python3"}).raise_for_status().json()
        path = lab.person.folder / f"runtime/kernel-{model['id']}.json"
        until(path.exists, timeout=PATIENCE_S, what="the kernel's connection file")
        self._client = BlockingKernelClient(connection_file=str(path))
        self._client.load_connection_file()
        self._client.start_channels()
        until(self._answers, timeout=PATIENCE_S, what="the kernel")

    def _answers(self) -> bool:
        try:
            self._client.wait_for_ready(timeout=10)
        except RuntimeError:  # it is not up yet
            return False
        return True

    def run(self, code: str) -> str:
        """What a reader sees below the cell. AssertionError with that if it fails."""
        shown: list[str] = []

        def take(message: dict[str, object]) -> None:
            content = message["content"]
            assert isinstance(content, dict)
            data = content.get("data", {})
            shown.append(content.get("text", "") or data.get("text/plain", ""))
            shown.extend(content.get("traceback", ()))

        reply = self._client.execute_interactive(code, timeout=PATIENCE_S, output_hook=take)
        text = "".join(shown)
        assert reply["content"]["status"] == "ok", f"{code}\n{text}"
        return text

    def close(self) -> None:
        """Leave it running."""
        self._client.stop_channels()
