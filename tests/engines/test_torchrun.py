# SPDX-License-Identifier: BSD-3-Clause
"""Real torchrun agents: two nodes with one process each, gloo over loopback."""

from __future__ import annotations

import socket
import sys

import pytest

from jupyter_gpubroker.core.model import Key
from jupyter_gpubroker.engines import Stop, torchrun

from .. import needs
from .conftest import LocalGround
from .contract import KEY, ended, pids_of, printed

TRAIN = """
import os, signal, sys
import torch, torch.distributed as dist

stop = torch.zeros(1)
signal.signal(signal.SIGTERM, lambda *_: stop.fill_(1))
dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.full((1,), float(rank + 1))
dist.all_reduce(total)
print(f"rank {rank} of {dist.get_world_size()} on node {os.environ['GROUP_RANK']}", flush=True)
print(f"sum {total.item():g}", flush=True)
if sys.argv[1] == "die" and rank == 1:
    print("rank one gives up", flush=True)
    os._exit(13)
while sys.argv[1] != "end":
    seen = stop.clone()
    dist.all_reduce(seen)
    if seen:
        print("saved", flush=True)
        break
dist.barrier()
dist.destroy_process_group()
sys.exit(75 if sys.argv[1] == "until-stopped" else 0)
"""


@pytest.mark.torch
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("how", "code", "ranks"), [("end", 0, [None]), ("die", 13, [1]), ("until-stopped", 75, [0, 1])]
)
async def test_two_agents_train_together(
    ground: LocalGround, how: str, code: int, ranks: list[int | None]
) -> None:
    needs.module("torch")
    engine = ground.engine()
    launch = ground.launch(
        "train.py",
        how,
        nodes=2,
        torchrun=True,
        python=sys.executable,
        files={"train.py": TRAIN.encode()},
    )
    await engine.start(KEY, launch)
    for rank in (0, 1):
        text = await printed(engine, "sum 3", rank=rank)
        assert f"rank {rank} of 2 on node {rank}" in text
    if how == "until-stopped":
        await engine.stop(KEY, Stop.TERM)
    report = await ended(engine)
    assert report.code == code, report.text
    # An agent that is told to leave gives 1; one that takes too long to is killed.
    assert all(agent == 0 for agent in report.codes) == (how == "end"), report.codes
    assert report.failed_rank in ranks
    if how == "die":
        assert "rank one gives up" in report.text
    if how == "until-stopped":
        assert "saved" in await printed(engine, "saved", rank=0)
        assert "saved" in await printed(engine, "saved", rank=1)
    assert pids_of(KEY.job) == []


@pytest.mark.asyncio
async def test_a_missing_torch_is_said_in_words(ground: LocalGround) -> None:
    # -S hides the packages of the environment, and torch with them.
    python = ground.root / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    engine = ground.engine()
    await engine.start(KEY, ground.launch("train.py", torchrun=True, python=str(python)))
    report = await ended(engine)
    assert (report.code, report.failed_rank) == (1, 0)
    assert "torch" in report.text


def test_addresses_sort_like_their_nodes() -> None:
    def address(node: int) -> str:
        command = torchrun.command(Key("b-x", 1), ("d",), node=node, counts=[1] * 300, port=1)
        return next(part for part in command if part.startswith("--local-addr="))

    addresses = [address(node) for node in range(300)]
    assert addresses == sorted(addresses)
    assert len(set(addresses)) == 300


def test_a_port_is_drawn_below_those_of_outgoing_connections_and_once() -> None:
    taken: set[int] = set()
    for _ in range(20):
        port = torchrun.draw_port(taken)
        assert port not in taken
        assert 20000 <= port < 32768
        taken.add(port)


def test_a_port_that_is_listened_on_is_not_drawn() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", torchrun.draw_port(())))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="no free TCP port"):
            torchrun.draw_port(set(range(20000, 32768)) - {port})
