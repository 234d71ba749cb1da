# SPDX-License-Identifier: BSD-3-Clause
"""Hosted attempts: gangs, crashes of everything that can crash, and who may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager

import pytest

from jupyter_gpubroker.core.model import Key, Mode
from jupyter_gpubroker.devices import processes
from jupyter_gpubroker.engines import EngineError, Phase, StartRefused, Stop, parts, recipe, shim
from jupyter_gpubroker.engines.records import Record, Records

from ..until import until_async
from .conftest import ROOT, LocalGround
from .contract import IGNORES_TERM, KEY, alive, child, ended, line, pids_of, printed, python

Child = subprocess.Popen[str]
pytestmark = pytest.mark.asyncio

SLEEPS = "import os, signal; print('up', os.getpid(), flush=True); signal.pause()"
FAILS = (
    "import os, signal\n"
    "print('up', os.getpid(), flush=True)\n"
    "if os.environ['RANK'] == '2':\n"
    "    print('rank two gives up', flush=True)\n"
    "    os._exit(13)\n"
    "signal.pause()"
)


def first_life(ground: LocalGround, nodes: int, *argv: str) -> AbstractContextManager[Child]:
    """A broker in a process of its own."""
    command = [sys.executable, "-m", "tests.engines.first_life", str(ground.root), str(nodes)]
    return child([*command, *argv], cwd=ROOT, start_new_session=True)


def records(ground: LocalGround) -> Records:
    return Records(ground.state, "broker-1")


def shims(ground: LocalGround) -> list[int]:
    """Pids of the shims of KEY."""
    count = len(ground.nodes)
    found = [parts.look(records(ground).part(KEY, rank), rank).shim for rank in range(count)]
    return [shim.pid for shim in found if shim]


# -- gangs


async def test_every_rank_has_its_global_number_and_its_nodes_devices(ground: LocalGround) -> None:
    engine = ground.engine()
    code = "import os; e = os.environ; print(e['RANK'], e['GROUP_RANK'], e['CUDA_VISIBLE_DEVICES'])"
    await engine.start(KEY, ground.gang(code, gpus=3))
    report = await ended(engine)
    assert (report.codes, report.code) == ((0, 0), 0)
    assert list(await engine.ranks(KEY)) == [0, 1, 2, 3, 4, 5]
    for rank in range(6):
        node = ground.nodes[rank // 3]
        devices = ",".join(device.uuid for device in node.devices[:3])
        assert await printed(engine, "\n", rank=rank) == f"{rank} {rank // 3} {devices}\n"


async def test_a_rank_that_dies_takes_all_down_and_is_named(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.gang(FAILS, gpus=2))
    report = await ended(engine)
    assert (report.code, report.failed_rank) == (13, 2)
    assert "rank two gives up" in report.text
    assert pids_of(KEY.job) == []


async def test_ranks_that_ignore_term_are_killed_with_their_gang(ground: LocalGround) -> None:
    engine = ground.engine()
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.environ['RANK'] == '1': os._exit(5)\n"
        "print('deaf', flush=True); signal.pause()"
    )
    await engine.start(KEY, ground.gang(code, gpus=2))
    report = await ended(engine)
    assert (report.code, report.failed_rank) == (5, 1)
    assert pids_of(KEY.job) == []


async def test_after_a_stop_slow_ranks_may_go_on_saving(ground: LocalGround) -> None:
    engine = ground.engine()
    code = (
        "import os, signal, sys\n"
        "path = os.environ['GPUBROKER_SPOOL'] + '/../go'\n"
        "def leave(*_):\n"
        "    if os.environ['RANK'] == '0': sys.exit(75)\n"
        "    print('saving', flush=True); open(path).read(); print('saved', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('up', flush=True)\n"
        "signal.pause()"
    )
    ground.folder.mkdir(parents=True)
    os.mkfifo(ground.folder / "go")
    await engine.start(KEY, ground.gang(code))
    for rank in (0, 1):
        await printed(engine, "up", rank=rank)
    await engine.stop(KEY, Stop.TERM)
    await printed(engine, "saving", rank=1)
    await until_async(lambda: ground.folder.joinpath("spool/exit-0.json").exists())
    assert (await engine.poll()).reports[KEY].phase is Phase.RUNNING
    (ground.folder / "go").write_text("")
    report = await ended(engine)
    assert "saved" in await printed(engine, "saved", rank=1)
    assert (report.codes, report.code, report.failed_rank) == ((1, 1), 75, 0)


async def test_a_node_that_refuses_keeps_all_from_starting(ground: LocalGround) -> None:
    # The second part cannot open its log: a folder has that name.
    (ground.folder / "node-1.log").mkdir(parents=True)
    engine = ground.engine()
    with pytest.raises(StartRefused, match="node2") as refused:
        await engine.start(KEY, ground.gang("print('ran')"))
    # Every node is this machine: to avoid that one would only make people wait.
    assert refused.value.node == ""
    assert KEY not in (await engine.poll()).reports
    assert pids_of(KEY.job) == []
    assert list(ground.folder.glob("rank-*.log")) == []


# -- crashes


async def test_a_job_outlives_a_broker_that_was_killed(ground: LocalGround) -> None:
    script = "trap 'echo leaving; exit 9' TERM; echo up $$; while :; do sleep 0.05; done"
    with first_life(ground, 1, "sh", "-c", script) as broker:
        assert line(broker) == "started"
    engine = ground.engine()
    await printed(engine, "up")
    assert (await engine.poll()).reports[KEY].phase is Phase.RUNNING
    await engine.stop(KEY, Stop.TERM)
    assert (await ended(engine)).code == 9
    assert (await printed(engine, "leaving")).count("up") == 1


async def test_a_broker_killed_before_the_first_part_starts_it_once_later(
    ground: LocalGround,
) -> None:
    owner = KEY.job
    records(ground).save(
        Record(KEY, "broker-1", Mode.HOSTED, owner, ground.placement(), str(ground.folder))
    )
    engine = ground.engine()
    assert (await engine.poll()).reports[KEY].phase is Phase.PENDING
    await engine.start(KEY, ground.launch("echo", "ran"))
    assert (await ended(engine)).code == 0
    assert await printed(engine, "ran") == "ran\n"


async def test_a_broker_killed_while_a_gang_gets_ready_starts_nothing(ground: LocalGround) -> None:
    ledger = records(ground)
    part = ledger.part(KEY, 1)
    part.mkdir(parents=True, mode=0o700)
    lock = shim.claim(str(part))
    assert lock is not None
    with first_life(ground, 2, "print('ran')"):
        # The second part cannot get ready: we have its lock.
        await until_async((ground.folder / "node-0.log").exists, what="the first part")
    os.close(lock)
    await until_async(lambda: pids_of(KEY.job) == [], what="the first part to leave")
    engine = ground.engine()
    assert (await engine.poll()).reports[KEY].phase is Phase.PENDING
    await engine.start(KEY, ground.gang("print('ran')"))
    assert (await ended(engine)).code == 0
    for rank in (0, 1):
        assert await printed(engine, "ran", rank=rank) == "ran\n"


async def test_a_broker_killed_between_two_parts_starts_only_the_missing_one(
    ground: LocalGround,
) -> None:
    launch = ground.gang("print('ran', flush=True)")
    ledger = records(ground)
    record = ledger.save(
        Record(
            KEY,
            "broker-1",
            Mode.HOSTED,
            KEY.job,
            launch.placement,
            str(ground.folder),
            os.geteuid(),
            torchrun=True,
            port=20001,
        )
    )
    first = recipe.spec(record, launch, ground.devices, 0)
    parts.start([ledger.part(KEY, 0)], [first], ["node1"])
    engine = ground.engine()
    await engine.start(KEY, launch)
    report = await ended(engine)
    assert report.codes[0] == 0
    assert await printed(engine, "ran") == "ran\n"


async def test_a_stop_keeps_missing_parts_from_ever_starting(ground: LocalGround) -> None:
    records(ground).save(
        Record(KEY, "broker-1", Mode.HOSTED, KEY.job, ground.placement(), str(ground.folder))
    )
    engine = ground.engine()
    await engine.stop(KEY, Stop.TERM)
    with pytest.raises(EngineError, match="leave"):
        await engine.start(KEY, ground.launch("echo", "ran"))
    report = await ended(engine)
    assert report.codes == (None,)
    assert report.code == -15
    assert not ground.folder.exists()


async def test_a_killed_shim_does_not_free_anything_before_its_tree_is_gone(
    ground: LocalGround,
) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.launch(*python(IGNORES_TERM)))
    await printed(engine, "up", times=3)  # who prints without a shim ends by itself
    grandchild = int((await printed(engine, "grandchild")).split("grandchild ")[1].split()[0])
    (watcher,) = shims(ground)
    os.kill(watcher, signal.SIGKILL)
    await until_async(lambda: not alive(watcher))
    report = (await ground.engine().poll()).reports[KEY]
    assert report.phase is Phase.RUNNING
    assert alive(grandchild)
    report = await ended(engine)
    assert (report.codes, report.code, report.failed_rank) == ((None,), -9, 0)
    assert "shim" in report.text
    assert not alive(grandchild)


async def test_a_stopped_shim_still_kills_its_tree(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.launch(*python(IGNORES_TERM)))
    await printed(engine, "up")
    (watcher,) = shims(ground)
    os.kill(watcher, signal.SIGSTOP)
    await engine.stop(KEY, Stop.KILL)
    assert (await ended(engine)).code == -9
    assert pids_of(KEY.job) == []


async def test_a_killed_shim_takes_its_gang_down(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.gang(SLEEPS))
    for rank in (0, 1):
        await printed(engine, "up", rank=rank)
    os.kill(shims(ground)[1], signal.SIGKILL)
    report = await ended(engine)
    assert (report.code, report.failed_rank) == (-9, 1)
    assert pids_of(KEY.job) == []


async def test_after_a_restart_of_the_machine_nothing_is_left_of_it(ground: LocalGround) -> None:
    ledger = records(ground)
    ledger.save(
        Record(KEY, "broker-1", Mode.HOSTED, KEY.job, ground.placement(), str(ground.folder))
    )
    # This very process: only the boot tells that it is not the job's.
    me = [os.getpid(), int(processes.this_process().start)]
    run = {"shim": me, "main": me, "boot": "an earlier one", "time": 1}
    shim.put(str(ledger.part(KEY, 0) / "run.json"), run)
    report = await ended(ground.engine())
    assert (report.code, report.text) == (-9, "the machine was restarted while it ran")


async def test_processes_of_another_attempt_are_left_alone(ground: LocalGround) -> None:
    env = {**os.environ, "GPUBROKER_JOB": KEY.job, "GPUBROKER_ATTEMPT": "2"}
    with child(["sleep", "600"], env=env) as other:
        await until_async(lambda: other.pid in pids_of(KEY.job))
        engine = ground.engine()
        await engine.start(KEY, ground.launch("sleep", "600"))
        os.kill(shims(ground)[0], signal.SIGKILL)
        await engine.stop(KEY, Stop.KILL)
        await ended(engine)
        assert other.poll() is None


async def test_another_brokers_records_are_not_touched(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.launch("sleep", "600"))
    foreign = Key("b-foreign", 1)
    Records(ground.state, "broker-2").save(
        Record(foreign, "broker-2", Mode.HOSTED, "b-foreign", ground.placement(), "/nowhere")
    )
    assert set((await engine.poll()).reports) == {KEY}
    await engine.stop(foreign, Stop.KILL)
    assert not (ground.state / "runs" / str(foreign) / "stop.json").exists()


# -- proof


async def test_devices_are_granted_from_start_to_proven_end(ground: LocalGround) -> None:
    engine = ground.engine()
    code = (
        "from jupyter_gpubroker.devices.simulated import hold\n"
        "memory = hold(512)\n"
        "print('holds', flush=True)\n"
        "import signal; signal.pause()"
    )
    await engine.start(KEY, ground.launch(*python(code), env={"PYTHONPATH": str(ROOT)}))
    await printed(engine, "holds")
    (use,) = ground.devices.usage()
    assert (use.owner, use.memory_mib) == (KEY.job, 512)
    await engine.stop(KEY, Stop.KILL)
    await ended(engine)
    assert list(ground.devices.usage()) == []
    code = "from jupyter_gpubroker.devices.simulated import hold; hold(1)"
    env = ground.session_environment("") | {"GPUBROKER_JOB": KEY.job}
    with child(python(code), env=env, stderr=subprocess.STDOUT) as late:
        assert "has no lease" in late.communicate()[0]


async def test_an_attempt_has_not_ended_while_its_memory_is_taken(ground: LocalGround) -> None:
    ground.devices.grant(KEY.job, ground.placement())
    code = (
        "from jupyter_gpubroker.devices.simulated import hold\n"
        "memory = hold(1)\n"
        "print(1, flush=True); input()"
    )
    env = ground.session_environment("") | {"GPUBROKER_JOB": KEY.job}
    # A process that got away from its shim and its marks, with memory of this job.
    with child(python(code), env=env) as runaway:
        assert line(runaway) == "1"
        engine = ground.engine()
        await engine.start(KEY, ground.launch("true"))
        await until_async((records(ground).part(KEY, 0) / "exit.json").exists)
        assert (await engine.poll()).reports[KEY].phase is Phase.RUNNING
        runaway.communicate("\n")
    assert (await ended(engine)).code == 0
