# SPDX-License-Identifier: BSD-3-Clause
"""``binding="server"`` in a Hub: servers without our package are started with their GPUs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from jupyterhub.tests.mocking import MockSpawner

from jupyter_gpubroker.devices.processes import process_of
from jupyter_gpubroker.spawner import GPUBrokerMixin
from jupyter_gpubroker.wire import JobOut
from tests.until import until_async

from .brokers import Broker
from .mockhub import Hub, MockGPUSpawner

pytestmark = [pytest.mark.hub, pytest.mark.asyncio, pytest.mark.timeout(300)]

WHOLE = {"gpu_wait": "start", "binding": "server"}
KERNEL = (
    "import signal; from jupyter_gpubroker.devices.simulated import hold; memory = hold(1024); "
    "print('holds', flush=True); signal.pause()"
)


class Unseen(MockGPUSpawner):
    """Servers that the broker cannot tell from other programs, as of another machine."""

    def get_env(self) -> dict[str, str]:
        """Without the name of the session."""
        return {k: v for k, v in super().get_env().items() if k != "GPUBROKER_SESSION"}


class HeldUp(MockSpawner):
    """A server whose start waits for the test."""

    go = asyncio.Event()

    async def start(self) -> Any:
        """As soon as it may."""
        await type(self).go.wait()
        return await super().start()


class HeldUpGPU(GPUBrokerMixin, HeldUp):
    """With a GPU."""


@contextmanager
def kernel(env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process of the server that holds memory of its GPUs."""
    command = [sys.executable, "-c", KERNEL]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "holds\n"
            yield process
        finally:
            process.kill()


async def up(hub: Hub, broker: Broker, key: str = "ana/") -> JobOut:
    """A server with the GPU; its session."""
    answer = await hub.spawn(key, gpus="1", time="1h")
    assert answer.status_code in (201, 202), answer.text
    await hub.ready(key)
    session = await broker.session(key)
    assert session is not None
    assert session.lease is not None
    return session


async def down(hub: Hub, key: str = "ana/") -> None:
    """Wait until the Hub knows that the server has ended."""
    await until_async(lambda: not hub.spawner(key).active, timeout=120, what=f"the end of {key}")


async def test_a_server_is_started_with_its_gpus_and_holds_them(hub: Hub, broker: Broker) -> None:
    await hub.start(**WHOLE)
    session = await up(hub, broker)
    assert session.state == "running"
    assert session.lease is not None
    (share,) = session.lease.shares
    env = hub.environment("ana/")
    assert env["CUDA_VISIBLE_DEVICES"] == share.device
    assert env["GPUBROKER_SESSION"] == "ana/"
    assert not session.lease.guarantees.parkable
    assert "it is stopped" in session.lease.guarantees.sentence
    assert session.idle is None, "it is never judged"
    stored = hub.stored_state("ana/")["gpubroker"]
    assert stored["lease"] == f"{session.id}.{session.attempt}"

    assert broker.shell is not None
    holder = broker.shell.world.jobs[session.id].holder
    process = process_of(hub.spawner("ana/").pid)
    assert holder is not None
    assert (holder.pid, holder.start) == process


async def test_a_start_without_a_gpu_shows_none(hub: Hub, broker: Broker) -> None:
    await hub.start(**WHOLE)
    assert (await hub.spawn("ana/")).status_code == 201
    env = hub.environment("ana/")
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert "lease" not in hub.stored_state("ana/")["gpubroker"]
    assert await broker.history("ana") == []
    assert await hub.spawner("ana/").poll() is None, "there is nothing that could be taken"


async def test_it_is_refused_where_servers_do_not_wait_for_their_gpus(
    hub: Hub, broker: Broker
) -> None:
    await hub.start(binding="server")
    answer = await hub.spawn("ana/", gpus="1")
    assert answer.status_code == 400
    assert "gpu_wait='start'" in answer.json()["message"]
    assert hub.refusal("ana/").reason == "gpu-refused"
    assert await broker.history("ana") == []


async def test_at_its_time_limit_the_server_is_stopped_and_the_gpu_is_free(
    hub: Hub, broker: Broker
) -> None:
    await hub.start(**WHOLE)
    await up(hub, broker)
    with kernel(hub.environment("ana/")) as process:
        broker.ahead += 3600
        await down(hub)
        assert process.wait(60) != 0
    (ended,) = await broker.ended("ana")
    assert (ended.state, ended.kept) == ("completed", ())
    assert "time limit" in ended.outcome
    assert (await up(hub, broker, "bo/")).state == "running"


async def test_a_cancel_stops_the_server(hub: Hub, broker: Broker) -> None:
    await hub.start(**WHOLE)
    session = await up(hub, broker)
    await broker.client().cancel(session.id)
    await down(hub)
    assert [job.state for job in await broker.ended("ana")] == ["cancelled"]


async def test_a_server_that_the_broker_cannot_reach_is_stopped_by_the_hub(
    hub: Hub, broker: Broker
) -> None:
    await hub.start(spawner_class=Unseen, **WHOLE)
    session = await up(hub, broker)
    pid = hub.spawner("ana/").pid
    await broker.client().cancel(session.id)
    await down(hub)
    assert process_of(pid) is None


async def test_stop_ends_the_session(hub: Hub, broker: Broker) -> None:
    await broker.change_policy("holder_grace: 1s", "holder_grace: 10m")
    await hub.start(**WHOLE)
    await up(hub, broker)
    await hub.cancel("ana/")
    assert [job.outcome for job in await broker.ended("ana")] == ["released"]


async def test_a_killed_server_does_not_leak_its_lease(hub: Hub, broker: Broker) -> None:
    await hub.start(**WHOLE)
    await up(hub, broker)
    with kernel(hub.environment("ana/")):
        hub.kill("ana/")
        assert [job.state for job in await broker.ended("ana")] == ["completed"]


async def test_a_server_that_died_and_starts_again_in_time_has_the_same_gpu(
    hub: Hub, broker: Broker
) -> None:
    await broker.change_policy("holder_grace: 1s", "holder_grace: 10m")
    await hub.start(**WHOLE)
    before = await up(hub, broker)
    hub.kill("ana/")
    await down(hub)
    after = await up(hub, broker)
    assert (after.id, after.attempt, after.state) == (before.id, before.attempt, "running")
    assert after.incarnation > before.incarnation
    assert after.lease is not None
    assert hub.environment("ana/")["CUDA_VISIBLE_DEVICES"] == after.lease.shares[0].device


async def test_a_broker_that_is_away_takes_nothing_away(hub: Hub, broker: Broker) -> None:
    await hub.start(**WHOLE)
    before = await up(hub, broker)
    await broker.stop()
    assert await hub.spawner("ana/").poll() is None
    await broker.start()
    assert await hub.spawner("ana/").poll() is None
    after = await broker.session("ana/")
    assert after is not None
    assert (after.id, after.state) == (before.id, "running")


async def test_a_server_whose_acknowledgement_was_lost_is_acknowledged_later(
    hub: Hub, broker: Broker
) -> None:
    HeldUp.go = asyncio.Event()
    await hub.start(spawner_class=HeldUpGPU, slow=1, **WHOLE)
    assert (await hub.spawn("ana/", gpus="1")).status_code == 202
    await until_async(lambda: _prepared(broker), what="the lease")
    await broker.stop()
    HeldUp.go.set()
    await hub.ready("ana/")
    await broker.start()

    async def running() -> bool:
        assert await hub.spawner("ana/").poll() is None
        session = await broker.session("ana/")
        return session is not None and session.state == "running"

    await until_async(running, what="the session to run")


async def test_gpus_that_are_taken_while_the_server_starts_end_the_start_with_a_word(
    hub: Hub, broker: Broker
) -> None:
    HeldUp.go = asyncio.Event()
    await hub.start(spawner_class=HeldUpGPU, slow=1, **WHOLE)
    assert (await hub.spawn("ana/", gpus="1")).status_code == 202
    session = await until_async(lambda: _prepared(broker), what="the lease")
    await broker.client().cancel(session.id)
    await broker.ended("ana")
    HeldUp.go.set()
    await down(hub)
    assert "taken back" in hub.refusal("ana/").message
    assert await hub.spawner("ana/").poll() is not None, "nothing of it runs"


async def _prepared(broker: Broker) -> JobOut | None:
    session = await broker.session("ana/")
    ready = session is not None and session.lease is not None and session.lease.prepared
    return session if ready else None
