# SPDX-License-Identifier: BSD-3-Clause
"""A cell run while the session is parked: it waits, it runs, or it is not run and says so."""

from __future__ import annotations

import pytest

from ..extension.standin import UUID, StandIn, job, kept, lease, why
from ..until import until
from .conftest import Start
from .notebook import Notebook

PARKED = {"state": "parked", "env": {}, "session": "s-1", "job_state": "parked", "text": ""}
LEASED = {
    "state": "leased",
    "env": {"CUDA_VISIBLE_DEVICES": UUID},
    "session": "s-1",
    "job_state": "running",
    "text": "",
}


@pytest.fixture
def parked(broker: StandIn, notebook: Notebook) -> Notebook:
    """A notebook whose session is parked, and which was told so."""
    notebook.run("x = 41")
    broker.let(job("s-1", "session", state="parked", parked_for="preempted", kept=kept("k-1")))
    assert notebook.ask(PARKED)["status"] == "ok"
    return notebook


def test_a_cell_waits_with_its_position_and_runs_when_the_gpu_is_back(
    broker: StandIn, parked: Notebook
) -> None:
    cell = parked.start("x += 1; print(x)")
    parked.wait_for(cell, "position 1 in the queue. all GPUs are taken")
    assert [asked.body for asked in broker.posts("resume")] == [{"person": False}]
    assert parked.ask(PARKED)["running"] is False, "it waits, it does not run"
    broker.change(why=why(3, "bo waits longer"))
    parked.wait_for(cell, "position 3 in the queue. bo waits longer")
    assert cell.status == ""
    broker.change(state="running", why=None, lease=lease(2))
    parked.ask(LEASED)
    parked.end(cell)
    assert cell.status == "ok"
    assert cell.stream == "42\n"
    assert "GPU back after" in cell.text


def test_an_interrupted_cell_is_not_run_and_leaves_the_session_parked(
    broker: StandIn, parked: Notebook
) -> None:
    cell = parked.start("x = 'ran'")
    parked.wait_for(cell, "position 1")
    queued = parked.start("x = 'ran too'")
    parked.interrupt()
    parked.end(cell)
    assert cell.status == "error"
    assert cell.error == "The cell was not run: interrupted while it waited for the GPU."
    assert broker.session is not None
    assert broker.session.state == "parked"
    assert parked.end(queued).status == "aborted"
    parked.ask(LEASED)
    assert parked.value("x") == "41"


@pytest.mark.parametrize(
    "code",
    ["%%bash\ntouch ran", "!touch ran", "await __import__('asyncio').to_thread(open, 'ran', 'w')"],
)
def test_no_kind_of_cell_runs_after_an_interrupt(parked: Notebook, code: str) -> None:
    cell = parked.start(code)
    parked.wait_for(cell, "position 1")
    parked.interrupt()
    assert parked.end(cell).status == "error"
    parked.ask(LEASED)
    assert parked.value("__import__('os').path.exists('ran')") == "False"


def test_the_cell_after_an_interrupted_empty_one_runs(parked: Notebook) -> None:
    cell = parked.start("# only a comment")
    parked.end(cell)
    assert cell.text.strip() == "", "a comment needs no GPU"
    broken = parked.start("x = (")
    parked.wait_for(broken, "position 1")
    parked.interrupt()
    assert "SyntaxError" in parked.end(broken).error or broken.status == "error"
    silent = parked.end(parked.start("x = 43", silent=True))
    assert silent.status == "ok"
    parked.ask(LEASED)
    assert parked.value("x") == "43"


def test_our_magics_and_silent_executions_do_not_wait(broker: StandIn, parked: Notebook) -> None:
    assert parked.run("# look\n\nq = %gpu_queue\n%gpu_session").status == "ok"
    assert parked.run("%gpu_session?").status == "ok"
    assert parked.run("x = 1", silent=True).status == "ok"
    assert broker.posts("resume") == []


def test_a_cell_run_while_it_is_being_parked_asks_for_the_gpu_once_it_is_parked(
    broker: StandIn, parked: Notebook
) -> None:
    broker.change(state="stopping", stage="park")
    cell = parked.start("print('ran')")
    parked.wait_for(cell, "is being parked")
    assert broker.posts("resume") == []
    broker.change(state="parked", stage="")
    until(lambda: broker.posts("resume"), what="the resume")
    parked.ask(LEASED)
    assert parked.end(cell).stream == "ran\n"


def test_a_cell_does_not_take_a_new_time_limit_by_itself(broker: StandIn, parked: Notebook) -> None:
    broker.change(parked_for="time")
    cell = parked.run("x = 'ran'")
    assert cell.status == "error"
    assert "Ask again with %gpu_session resume" in cell.error
    assert broker.posts("resume") == []


def test_a_cell_is_not_run_when_the_session_is_parked_again(
    broker: StandIn, parked: Notebook
) -> None:
    cell = parked.start("x = 'ran'")
    parked.wait_for(cell, "position 1")
    broker.change(state="parked", why=None)
    assert "parked again" in parked.end(cell).error


def test_a_cell_is_not_run_when_the_session_ends(broker: StandIn, parked: Notebook) -> None:
    cell = parked.start("x = 'ran'")
    parked.wait_for(cell, "position 1")
    broker.let(None)
    parked.ask({"state": "none", "env": {"CUDA_VISIBLE_DEVICES": ""}, "text": "expired"})
    assert "the session ended while it was parked. expired" in parked.end(cell).error
    assert parked.run("x").status == "ok", "the next one runs, without a GPU"


def test_a_cell_goes_on_waiting_while_the_broker_does_not_answer(
    broker: StandIn, parked: Notebook, start: Start
) -> None:
    lost = start(GPUBROKER_URL="http://127.0.0.1:9")
    lost.ask(PARKED)
    cell = lost.start("print('ran')")
    lost.wait_for(cell, "does not answer")
    assert cell.status == ""
    lost.ask(LEASED)
    assert lost.end(cell).stream == "ran\n"
