# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that do to themselves, to their folder or to us what no job should."""

from __future__ import annotations

import sys

from jupyter_gpubroker.client import Client
from jupyter_gpubroker.wire import RequestIn, SubmitIn

from .brokers import SoloBroker, ended


def submit(broker: SoloBroker, client: Client, code: str, **more: object) -> str:
    fields = {
        "argv": ("job.py",),
        "files": {"job.py": code},
        "cwd": str(broker.folder),
        "env": broker.environment,
        "python": sys.executable,
        "torchrun": False,
        "request": RequestIn(gpus=1, time="10m"),
        "max_restarts": 0,
    }
    return client.submit(SubmitIn.model_validate(fields | more)).id


def test_a_folder_that_is_not_there_is_told_at_once_and_nobody_is_avoided(
    broker: SoloBroker,
) -> None:
    client = broker.start().client()
    job = submit(broker, client, "", cwd="/no/such/folder")
    done = ended(client, job, timeout=60)
    assert done.state == "failed"
    assert "did not start" in done.outcome
    assert "/no/such/folder" in done.outcome
    story = client.explain(job).story
    told = [entry.facts for entry in story if entry.event == "job.refused"]
    assert all("/no/such/folder" in facts["text"] for facts in told)
