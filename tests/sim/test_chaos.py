# SPDX-License-Identifier: BSD-3-Clause
"""Everything goes wrong, seed by seed; then everything ends. And the checks can fail."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core.model import Request, State
from jupyter_gpubroker.sim import chaos
from jupyter_gpubroker.sim.__main__ import main
from jupyter_gpubroker.sim.agenda import Agenda
from jupyter_gpubroker.sim.engine import Engine, cluster
from jupyter_gpubroker.sim.safety import Safety, Unsafe, at_rest
from jupyter_gpubroker.sim.stage import Stage
from jupyter_gpubroker.store import LaunchRow, Writes

SEEDS = 200
PORTION = 25

LAUNCH = LaunchRow(("true",), {}, "/", "", torchrun=False)


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_nothing_is_unsafe_and_everything_ends(first: int) -> None:
    for seed in range(first, first + PORTION):
        result = chaos.run(seed)
        assert not result.error, f"make sim SEEDS=1 FIRST_SEED={seed}\n{result.error}"
        assert result.turns <= chaos.TURNS_MAX


def digest(seed: int) -> str:
    return hashlib.sha256("\n".join(chaos.run(seed).digest).encode()).hexdigest()


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    code = "from tests.sim.test_chaos import digest; print(digest(7))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for salt in ("1", "2")
    }
    assert told == {digest(7)}
    assert digest(7) != digest(8)


def test_the_command_says_how_the_seeds_went(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--first", "3"]) == 0
    assert "1 seeds" in capsys.readouterr().out


# --- the checks can fail ------------------------------------------------------------------


def stage() -> Stage:
    """One machine of two GPUs and a job that runs on one of them."""
    made = Stage(Engine(Agenda(1000.0), cluster(1, 2)), policy.default(), check=Safety())
    submit(made)
    made.run(3)
    return made


def submit(made: Stage, gpus: int = 1) -> str:
    job = made.ask(i.Submit("user:ana", "ana", Request(gpus=gpus), LAUNCH))
    assert job is not None
    return job.id


def test_a_device_that_is_granted_twice_is_noticed() -> None:
    made = stage()
    (job,) = made.world.leased()
    assert job.lease is not None
    twice = replace(job, id="b-9")
    made.world.put(twice)
    with pytest.raises(Unsafe, match="granted"):
        Safety()(made, made.broker.turn([], made.now))


def test_what_is_granted_while_in_use_is_noticed() -> None:
    made = stage()
    (job,) = made.world.leased()
    made.world.put(replace(job, state=State.COMPLETED, lease=None))
    with pytest.raises(Unsafe, match="while in use"):
        submit(made, gpus=2)


def test_a_run_that_nobody_accounts_for_is_noticed() -> None:
    made = stage()
    (job,) = made.world.leased()
    made.world.put(replace(job, state=State.COMPLETED, lease=None))
    with pytest.raises(Unsafe, match="accounts"):
        made.run(60)


def test_half_a_gang_is_noticed() -> None:
    made = stage()
    (job,) = made.world.leased()
    half = replace(job, request=Request(nodes=2, gpus=1))
    turn = made.broker.turn([], made.now)
    with pytest.raises(Unsafe, match="nodes of 2"):
        Safety()(made, replace(turn, writes=Writes(jobs=(half,))))


def test_use_that_is_charged_wrongly_is_noticed() -> None:
    made = stage()
    (job,) = made.world.leased()
    made.world.put(replace(job, gpu_seconds=5.0))
    made.engine.leave(job.key, 0)
    with pytest.raises(Unsafe, match="charged wrongly"):
        made.run(3)


def test_a_deadline_that_passes_unheard_is_noticed() -> None:
    made = stage()
    (job,) = made.world.leased()
    assert job.lease is not None
    late = replace(job, lease=replace(job.lease, expires=made.now - 1))
    turn = made.broker.turn([], made.now)
    made.world.put(late)
    with pytest.raises(Unsafe, match="deadline"):
        Safety()(made, turn)


def test_a_hole_in_the_journal_is_noticed() -> None:
    made = stage()
    safety = Safety()
    first, *_, last = made.store.entries(0)
    turn = made.broker.turn([], made.now)
    with pytest.raises(Unsafe, match=f"entry {last.seq} follows 1"):
        safety(made, replace(turn, writes=Writes(entries=(first, last))))


def test_what_never_ends_is_noticed() -> None:
    with pytest.raises(Unsafe, match="have not ended"):
        at_rest(stage())
