# SPDX-License-Identifier: BSD-3-Clause
"""The magics in real kernels: what they ask of the broker, and what a person sees."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from jupyter_gpubroker import wire
from jupyter_gpubroker.inject import FOLDER

from ..extension.standin import UUID, StandIn, job, lease, why
from ..until import until
from .conftest import Start
from .notebook import Notebook


@pytest.fixture(params=["bare", "full"])
def any_notebook(request: pytest.FixtureRequest, start: Start) -> Notebook:
    """A kernel of a venv that holds only ipykernel, and one of the test's own."""
    if request.param == "bare":
        return start(request.getfixturevalue("bare_python"))
    return start()


def queue_row(**changes: object) -> wire.QueueRow:
    fields = {
        "id": "b-7",
        "kind": "batch",
        "user": "bo",
        "queue": "default",
        "class_name": "batch",
        "name": "<b>train</b>",
        "words": "2 × 3 GPUs",
        "submitted": 0.0,
        "why": why(1, "needs the GPUs of ana"),
        "mine": False,
    }
    return wire.QueueRow(**{**fields, **changes})  # type: ignore[arg-type]  # names are dynamic


def test_they_are_there_without_load_ext_and_document_themselves(any_notebook: Notebook) -> None:
    assert any_notebook.value("'jupyter_gpubroker' in __import__('sys').modules") == "False"
    page = any_notebook.run("%gpu_submit?").help
    assert "--gpus GPUS" in page
    assert "%gpu_submit [--nodes NODES]" in page
    assert "The code is copied now" in page
    for name in ("gpu_queue", "gpu_jobs", "gpu_logs", "gpu_cancel", "gpu_explain", "gpu_session"):
        assert f"%{name}" in any_notebook.run(f"%{name}?").help


def test_a_submitted_cell_is_shown_live_after_the_cell_has_returned(
    broker: StandIn, any_notebook: Notebook
) -> None:
    any_notebook.run("import os; os.environ['MY_API_KEY'] = 'x'")
    cell = any_notebook.run(
        "%%gpu_submit --nodes 2 --gpus 3 --time 10m --name demo --python /bin/true\nprint('hi')\n"
    )
    assert cell.status == "ok"
    assert "b-1 demo: queued" in cell.text
    assert "position 1: all GPUs are taken" in cell.text
    assert len([text for text in cell.shown.values() if "b-1" in text]) == 1, "shown once"
    (asked,) = broker.posts("/jobs")
    assert asked.body["files"] == {"cell.py": "print('hi')\n"}
    assert asked.body["argv"] == ["cell.py"]
    assert asked.body["request"] == {"nodes": 2, "gpus": "3", "time": "10m"}
    assert asked.body["cwd"]
    assert "JUPYTERHUB_API_TOKEN" not in asked.body["env"]
    assert "JUPYTERHUB_*" in cell.stream, "a Hub sets very many"
    assert "JUPYTERHUB_API" not in cell.stream
    assert "they look like secrets (--env NAME does): MY_API_KEY\n" in cell.stream
    assert asked.key
    assert asked.token == "token secret"

    broker.logs["b-1", 0], broker.logs["b-1", 1] = "epoch 1\n", "joined <world>\n"
    broker.jobs["b-1"] = broker.jobs["b-1"].model_copy(
        update={"state": wire_state("running"), "why": None, "attempt": 1, "lease": lease(1)}
    )
    any_notebook.wait_for(cell, "[rank 0] epoch 1\n[rank 1] joined <world>")
    assert "running" in cell.text
    html = "".join(cell.html.values())
    assert "joined &lt;world&gt;" in html
    broker.logs["b-1", 0] += "".join(f"epoch {n}\n" for n in range(2, 30))
    broker.jobs["b-1"] = broker.jobs["b-1"].model_copy(
        update={"state": wire_state("completed"), "outcome": "completed", "lease": None}
    )
    any_notebook.wait_for(cell, "[rank 0] epoch 29")
    any_notebook.wait_for(cell, "completed")
    assert "epoch 3\n" not in cell.text, "only the end of each log"


def wire_state(word: str) -> object:
    return job(state=word).state


def test_what_submit_returns_can_be_asked_waited_for_and_shown_again(
    broker: StandIn, notebook: Notebook, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    options = "--gpus 1 --flavor h100 --no-torchrun --no-requeue --exit-zero done"
    cell = notebook.run(f"j = %gpu_submit {options} train.py --lr 0.1")
    assert "b-1: queued" in cell.text
    (asked,) = broker.posts("/jobs")
    assert asked.body["argv"] == ["train.py", "--lr", "0.1"]
    assert asked.body["request"] == {"gpus": "1", "flavors": ["h100"]}
    said = [asked.body[name] for name in ("torchrun", "requeue", "exit_zero_done")]
    assert said == [False, False, True]
    assert asked.body["files"] == {"train.py": "print('trained')"}
    assert asked.body["python"] == sys.executable
    assert "b-1: queued" in notebook.run("j").text
    assert notebook.value("(j.id, j.state)") == "('b-1', 'queued')"
    waiting = notebook.start("print(j.wait().state)")
    broker.logs["b-1", 0] = "trained\n"
    broker.jobs["b-1"] = broker.jobs["b-1"].model_copy(
        update={"state": wire_state("completed"), "outcome": "done", "attempt": 1}
    )
    assert notebook.end(waiting).stream == "completed\n"
    assert notebook.value("j.logs()") == repr("trained\n")


def test_waiting_for_a_job_can_be_interrupted_and_the_job_goes_on(
    broker: StandIn, notebook: Notebook
) -> None:
    cell = notebook.start("%%gpu_submit --wait\npass")
    notebook.wait_for(cell, "b-1")
    until(lambda: [a for a in broker.asked if a.path == "/jobs/b-1"], what="the waiting")
    notebook.interrupt()
    assert "b-1 goes on" in notebook.end(cell).stream
    assert broker.posts("cancel") == []


WRONG = {
    "%gpu_submit": "there is nothing to run",
    "%gpu_submit missing.py": "cannot be read",
    "%gpu_submit nosuchcommand": "nosuchcommand: there is no such program on PATH",
    "%%gpu_submit --python /opt/none\npass": "/opt/none: there is no such program",
    "%gpu_submit --nope x.py": "unrecognized arguments: --nope",
    "%gpu_submit --nodes two x.py": "invalid int value: 'two'",
    "%gpu_submit --env JUPYTERHUB_API_TOKEN x.py": "belongs to this server",
    "%%gpu_submit --gpus 1 --memory 4GB\npass": "not both",
    "%gpu_session extend": "extend by how much?",
    "%gpu_session park 1h": "only extend takes a time",
    "%gpu_session park": "no GPU session to park",
    "%gpu_session dance": "invalid choice: 'dance'",
    "%gpu_logs": "the following arguments are required: job",
    "%gpu_logs b-9": "there is no job b-9",
    "%gpu_explain b-9": "there is no job b-9",
}


def test_wrong_use_is_told_in_one_line(notebook: Notebook) -> None:
    for code, says in WRONG.items():
        cell = notebook.run(code)
        assert cell.status == "error", code
        told = cell.stream + cell.error
        assert told.splitlines()[-1].startswith("UsageError: "), code
        assert says in told, code
        assert "Traceback" not in told, code


def test_a_refusal_of_the_broker_names_the_field_and_the_remedy(
    broker: StandIn, notebook: Notebook
) -> None:
    refusal = wire.ErrorOut(
        error="refused", message="9 GPUs fit nowhere", field="gpus", remedy="at most 4"
    )
    broker.refuse["POST /sessions"] = (400, refusal)
    cell = notebook.run("%gpu_session request --gpus 9")
    assert cell.stream + cell.error == "UsageError: gpus: 9 GPUs fit nowhere (at most 4)\n"


def test_a_missing_broker_is_told_in_one_line(start: Start) -> None:
    lost = start(GPUBROKER_URL="http://127.0.0.1:9")
    assert "http://127.0.0.1:9 does not answer" in lost.run("%gpu_queue").error
    nowhere = start(GPUBROKER_URL="", GPUBROKER_SESSION="")
    assert "GPUBROKER_URL is not set" in nowhere.run("%gpu_queue").error


def test_the_queue_reads_well_as_text_and_is_escaped_as_html(
    broker: StandIn, notebook: Notebook
) -> None:
    assert notebook.run("%gpu_queue").text.strip() == "Nothing waits in the queue."
    broker.queue = [queue_row(), queue_row(id="b-8", mine=True, why=why(2, "behind b-7"))]
    cell = notebook.run("%gpu_queue")
    (text,), (html,) = cell.shown.values(), cell.html.values()
    heading, first, second = text.splitlines()
    assert heading.split()[:3] == ["#", "job", "user"]
    assert first.startswith("1  b-7")
    assert first.endswith("needs the GPUs of ana")
    assert "b-8 (yours)" in second
    assert "  bo  " in first, "whom it waits for"
    assert "&lt;b&gt;train&lt;/b&gt;" in html
    assert notebook.value("[row['id'] for row in _]") == "['b-7', 'b-8']"


def test_jobs_are_listed_cancelled_and_explained(broker: StandIn, notebook: Notebook) -> None:
    broker.jobs["b-1"] = job("b-1", name="train", why=why())
    broker.say("placed", "b-1", "starting")
    assert "train" in notebook.run("%gpu_jobs").text
    story = notebook.run("%gpu_explain b-1").text
    assert story.startswith("b-1 train: queued, 0.5 GPU\nposition 1: all GPUs are taken")
    assert "got its place → starting" in story
    assert "cancelled by ana" in notebook.run("%gpu_cancel b-1").text


def test_logs_are_followed_by_rank_until_the_job_is_over(
    broker: StandIn, notebook: Notebook
) -> None:
    broker.jobs["b-1"] = job("b-1", state="running", attempt=1, lease=lease(1))
    broker.logs["b-1", 0], broker.logs["b-1", 1] = "a\n", "b\n"
    assert notebook.run("%gpu_logs b-1 --rank 1").stream == "b\n"
    cell = notebook.start("%gpu_logs b-1 --follow")
    notebook.wait_for(cell, "[rank 1] b")
    broker.logs["b-1", 0] += "c\n"
    notebook.wait_for(cell, "[rank 0] c")
    broker.jobs["b-1"] = job("b-1", state="completed", attempt=1, outcome="done")
    assert notebook.end(cell).status == "ok"
    broker.jobs["b-1"] = job("b-1", state="running", attempt=1, lease=lease(1))
    cell = notebook.start("%gpu_logs b-1 -f")
    notebook.wait_for(cell, "[rank 0] c")
    notebook.interrupt()
    assert "b-1 goes on" in notebook.end(cell).stream


def test_a_session_is_requested_and_waited_for_from_a_cell(
    broker: StandIn, notebook: Notebook
) -> None:
    assert "%gpu_session request" in notebook.run("%gpu_session").stream
    cell = notebook.start("s = %gpu_session request --gpus 0.5 --time 2h --wait")
    notebook.wait_for(cell, "position 1")
    (asked,) = broker.posts("/sessions")
    assert asked.body == {
        "request": {"gpus": "0.5", "time": "2h"},
        "server": "",
        "incarnation": 7,
        "queue": "",
        "class": "",
    }
    broker.change(state="running", why=None, lease=lease(1), attempt=1)
    notebook.ask({"state": "leased", "env": {"CUDA_VISIBLE_DEVICES": UUID}, "session": "s-1"})
    assert notebook.end(cell).status == "ok"
    assert notebook.value("__import__('os').environ['CUDA_VISIBLE_DEVICES']") == repr(UUID)
    assert "on node1 until" in notebook.run("%gpu_session").text
    assert notebook.run("%gpu_session keep").status == "ok"
    assert notebook.run("%gpu_session extend 1h").status == "ok"
    assert broker.posts("extend")[0].body == {"time": "1h"}
    assert "completed" in notebook.run("%gpu_release").text


def test_ids_and_verbs_are_completed(broker: StandIn, notebook: Notebook) -> None:
    broker.jobs = {"b-1": job("b-1", state="completed"), "b-2": job("b-2")}
    assert notebook.complete("%gpu_logs b-") == ["b-1", "b-2"]
    assert notebook.complete("%gpu_cancel b-") == ["b-2"], "only what can be cancelled"
    assert notebook.complete("%gpu_session ext") == ["extend"]
    broker.refuse["GET /jobs"] = (503, wire.ErrorOut(error="degraded", message="no database"))
    assert "b-1" not in notebook.complete("%gpu_logs b-")


def test_a_broken_load_is_a_line_in_the_log_and_never_stops_a_kernel(
    start: Start, tmp_path: Path
) -> None:
    shadow = tmp_path / "first"
    shutil.copytree(FOLDER, shadow)
    (shadow / "gpubroker/gate.py").write_text("raise OSError('broken')")
    broken = start(PYTHONPATH=str(shadow))
    assert broken.run("print(1)").stream == "1\n"
    assert "not found" in broken.run("%gpu_queue").text
