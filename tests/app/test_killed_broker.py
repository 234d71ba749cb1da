# SPDX-License-Identifier: BSD-3-Clause
"""kill -9 of the broker at the worst moments: the work goes on and completes exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.until import until

from .brokers import SoloBroker, ended, reached

GANG = """
import os, threading, torch, torch.distributed as dist
wait = threading.Event().wait
dist.init_process_group("gloo")
rank = dist.get_rank()
with open("starts", "a") as starts:
    starts.write(f"{rank}\\n")
go = torch.zeros(1)
step = 0
while not go.item():
    step += 1
    go = torch.tensor([float(os.path.exists("go"))])
    dist.all_reduce(go, op=dist.ReduceOp.MAX)
    if step <= 50:
        print("step", step, flush=True)
    wait(0.02)
print("end", flush=True)
dist.destroy_process_group()
"""


def _once(broker: SoloBroker) -> bool:
    ranks = (broker.folder / "starts").read_text().split()
    return sorted(ranks) == ["0", "1"]


def _whole(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.startswith(("step", "end"))]
    steps = [int(line.split()[1]) for line in lines if line.startswith("step")]
    return steps == list(range(1, len(steps) + 1)) and lines[-1] == "end"


@pytest.mark.torch
def test_training_goes_on_while_the_broker_is_dead_and_completes_once(broker: SoloBroker) -> None:
    client = broker.start().client()
    job = broker.submit(client, GANG, nodes=2, gpus=1, time="10m")
    until((broker.folder / "starts").exists, timeout=120, what="the ranks to train")
    broker.kill()
    (broker.folder / "go").touch()
    client = broker.start().client()
    done = ended(client, job.id)
    assert (done.state, done.attempt, done.restarts) == ("completed", 1, 0)
    assert _once(broker)
    for rank in (0, 1):
        assert _whole(client.logs(job.id, rank=rank).text)


@pytest.mark.torch
@pytest.mark.parametrize("moment", ["record", "run"])
def test_a_gang_is_started_once_whenever_the_broker_dies(broker: SoloBroker, moment: str) -> None:
    """``record``: after the commit, before the first agent; ``run``: between the two agents
    or right after."""
    client = broker.start().client()
    (broker.folder / "go").touch()
    job = broker.submit(client, GANG, nodes=2, gpus=1, time="10m")
    runs = broker.folder / "state" / "local"
    until(lambda: _seen(runs, job.id, moment), what=f"the {moment} of the first part")
    broker.kill()
    client = broker.start().client()
    done = ended(client, job.id)
    assert (done.state, done.attempt) == ("completed", 1)
    assert _once(broker)


def _seen(runs: Path, job: str, moment: str) -> bool:
    """The attempt's record is on disk; or the first part of it runs."""
    pattern = f"**/{job}*" if moment == "record" else f"**/{job}*/**/run.json"
    return any(True for _ in runs.glob(pattern))


def test_a_broker_killed_right_after_the_answer_runs_the_job_once(broker: SoloBroker) -> None:
    client = broker.start().client()
    job = broker.submit(client, "open('ran', 'a').write('x')", gpus=1, time="1m")
    broker.kill()
    client = broker.start().client()
    assert ended(client, job.id).state == "completed"
    assert (broker.folder / "ran").read_text() == "x"


STUBBORN = """
import os, signal, threading
wait = threading.Event().wait
signal.signal(signal.SIGTERM, lambda *_: open("asked", "a").write("x"))
open("up", "w").close()
while not os.path.exists("leave"):
    wait(0.02)
open("left", "w").close()
"""


def test_a_broker_killed_between_signal_and_exit_sees_the_end(broker: SoloBroker) -> None:
    client = broker.start().client()
    job = broker.submit(client, STUBBORN, gpus=1, time="10m")
    until((broker.folder / "up").exists, what="the program to be up")
    client.cancel(job.id)
    until((broker.folder / "asked").exists, what="the signal to arrive")
    broker.kill()
    (broker.folder / "leave").touch()
    client = broker.start().client()
    done = ended(client, job.id)
    assert done.state == "cancelled"
    assert (broker.folder / "left").exists()
    assert all(device.free_milli == 1000 for node in client.nodes() for device in node.devices)


def test_only_one_broker_serves_a_store(broker: SoloBroker) -> None:
    client = broker.start().client()
    second = SoloBroker(broker.folder)
    second.start()
    assert second.process is not None
    assert second.process.wait(60) == 0
    assert client.health().status == "ok"


def test_a_broker_that_is_told_to_end_leaves_the_work_alone(broker: SoloBroker) -> None:
    client = broker.start().client()
    job = broker.submit(client, STUBBORN, gpus=1, time="10m")
    until((broker.folder / "up").exists, what="the program to be up")
    assert broker.stop() == 0
    client = broker.start().client()
    assert reached(client, job.id, "running").attempt == 1
    assert not (broker.folder / "asked").exists()
    (broker.folder / "leave").touch()
    assert ended(client, job.id).state == "completed"
