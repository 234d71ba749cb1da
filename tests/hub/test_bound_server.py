# SPDX-License-Identifier: BSD-3-Clause
"""A real Hub whose servers lack our package: their kernels inherit the GPU, and it comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from jupyter_gpubroker.devices.processes import process_of
from tests.until import until

from .brokers import POLICY
from .realhub import PATIENCE_S, RealHub

pytestmark = [pytest.mark.hub, pytest.mark.timeout(900)]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RealHub]:
    """One GPU; servers do not load our extension."""
    made = RealHub(
        tmp_path,
        devices="simulated:1x1",
        policy=POLICY.replace("holder_grace: 1s", "holder_grace: 5m"),
        gpu_wait="start",
        binding="server",
        extension=False,
    )
    try:
        yield made.start()
    finally:
        made.close()


class Kernel:
    """A kernel of a user's server, over its own connection."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self.client = client

    def run(self, code: str) -> str:
        """What it prints; AssertionError if it fails."""
        shown: list[str] = []

        def take(message: dict[str, dict[str, str]]) -> None:
            shown.append(message["content"].get("text", ""))

        reply = self.client.execute_interactive(code, timeout=PATIENCE_S, output_hook=take)
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(shown).strip()


@contextmanager
def kernel(hub: RealHub, user: str) -> Iterator[Kernel]:
    """Started through the server's own API."""
    answer = httpx.post(
        f"{hub.url}/user/{user}/api/kernels",
        json={"name": "python3"},
        headers={"Authorization": f"token {hub.token_of(user)}"},
        timeout=PATIENCE_S,
        trust_env=False,
    ).raise_for_status()
    name = f"kernel-{answer.json()['id']}.json"
    homes = hub.folder / "homes"
    path = until(lambda: next(homes.rglob(name), None), timeout=PATIENCE_S, what=name)
    assert path is not None
    client = BlockingKernelClient(connection_file=str(path))
    client.load_connection_file()
    client.start_channels()
    try:
        until(lambda: _answers(client), timeout=PATIENCE_S, what="the kernel")
        yield Kernel(client)
    finally:
        client.stop_channels()


def _answers(client: BlockingKernelClient) -> bool:
    try:
        client.wait_for_ready(timeout=10)
    except RuntimeError:  # it is not up yet
        return False
    return True


def test_a_kernel_inherits_the_gpu_and_a_cancel_gives_it_to_the_next(hub: RealHub) -> None:
    hub.spawn("ana/", gpus="1")
    server = hub.ready("ana/")
    first = hub.running("ana/")
    assert first.lease is not None
    with kernel(hub, "ana") as cells:
        device = cells.run("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
        assert device == first.lease.shares[0].device
        cells.run(
            "from jupyter_gpubroker.devices.simulated import hold\n"
            "memory = hold(1024); memory.touch()"
        )
        pid = int(cells.run("print(os.getpid())"))
        hub.spawn("bo/", gpus="1")
        waiting = until(lambda: hub.session("bo/"), what="a place in the queue")

        # The Hub dies and comes back: nothing is taken, and the server is still known.
        hub.kill()
        until(lambda: not hub.brokers(), timeout=PATIENCE_S, what="the broker to end with its Hub")
        hub.start()
        assert hub.ready("ana/") == server
        assert hub.running("ana/").attempt == first.attempt
        assert cells.run("memory.touch(); print('there')") == "there"

    with hub.broker() as broker:
        broker.cancel(first.id)
    until(lambda: not hub.server("ana/"), timeout=PATIENCE_S, what="the server to be stopped")
    assert (process_of(server), process_of(pid)) == (None, None)
    assert hub.sessions("ana")[0].state == "cancelled"

    hub.spawn("bo/", gpus="1")
    hub.ready("bo/")
    second = hub.running("bo/")
    assert second.id == waiting.id, "who asks again in time has the same place"
    assert second.lease is not None
    assert second.lease.shares == first.lease.shares
