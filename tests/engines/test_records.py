# SPDX-License-Identifier: BSD-3-Clause
"""What the local engine remembers on disk."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpubroker.core.model import Kept, Key, Mode, Process, Rung, Share
from jupyter_gpubroker.engines import Phase, Report, Stop
from jupyter_gpubroker.engines.records import Record, Records

KEY = Key("b-1", 2)
RECORD = Record(
    KEY,
    "broker-1",
    Mode.HOSTED,
    "b-1",
    (Share("n1", "GPU-1", 1000), Share("n2", "GPU-2", 500, 1024)),
    "/home/ana/jobs/b-1/2",
    1000,
    torchrun=True,
    port=20001,
)
KEPT = Kept("k", 2, Rung.GPU_STATE, devices=("GPU-1",), processes=(Process(1, 2),))
REPORT = Report(KEY, Phase.EXITED, Mode.HOSTED, (0, None), 0, text="é", kept=(KEPT,))


def test_another_process_reads_what_one_wrote(tmp_path: Path) -> None:
    first = Records(tmp_path, "broker-1")
    first.save(RECORD)
    first.ask(KEY, Stop.TERM)
    first.end(REPORT)
    second = Records(tmp_path, "broker-1")
    assert list(second.present()) == [KEY]
    assert second.get(KEY) == RECORD
    assert second.asked(KEY) is Stop.TERM
    assert second.ended(KEY) == REPORT


def test_a_stronger_stop_is_not_forgotten_for_a_weaker(tmp_path: Path) -> None:
    records = Records(tmp_path, "broker-1")
    records.save(RECORD)
    for how, strongest in ((Stop.TERM, Stop.TERM), (Stop.KILL, Stop.KILL), (Stop.TERM, Stop.KILL)):
        records.ask(KEY, how)
        assert records.asked(KEY) is strongest


def test_only_what_has_ended_is_forgotten_and_its_folder_is_known(tmp_path: Path) -> None:
    records = Records(tmp_path, "broker-1")
    records.save(RECORD)
    records.forget(KEY)
    assert records.get(KEY) == RECORD
    records.end(REPORT)
    records.forget(KEY)
    records.forget(KEY)
    assert (list(records.present()), records.get(KEY), records.ended(KEY)) == ([], None, None)
    assert records.forgotten(KEY) == Records(tmp_path, "broker-1").forgotten(KEY) == RECORD


def test_what_was_forgotten_long_ago_is_found_and_dropped(tmp_path: Path) -> None:
    records = Records(tmp_path, "broker-1")
    assert records.old(time.time()) == []
    records.save(RECORD)
    records.end(REPORT)
    records.forget(KEY)
    now = (tmp_path / "ended" / f"{KEY}.json").stat().st_ctime
    assert records.old(now) == []
    assert records.old(now + 1) == [RECORD]
    records.drop(KEY)
    records.drop(KEY)
    assert (records.forgotten(KEY), records.old(now + 1)) == (None, [])


def test_what_a_crash_left_of_a_folder_is_dropped_a_day_later(tmp_path: Path) -> None:
    records = Records(tmp_path, "broker-1")
    records.save(RECORD)
    left = tmp_path / "runs" / "b-left.1" / "0"
    left.mkdir(parents=True)
    records.sweep(time.time() + 3600)
    assert left.exists()
    records.sweep(time.time() + 86500)
    assert not left.parent.exists()
    assert records.get(RECORD.key) == RECORD


def test_a_draft_left_by_a_crash_is_no_record(tmp_path: Path) -> None:
    records = Records(tmp_path, "broker-1")
    records.save(RECORD)
    os.rename(records.path(KEY) / "record.json", records.path(KEY) / "record.json.77.new")
    later = Records(tmp_path, "broker-1")
    assert later.get(KEY) is None
    assert later.save(RECORD) == later.get(KEY)


@pytest.mark.parametrize("job", ["../b-1", "b/1", "", ".b", "b 1"])
def test_a_key_never_leads_out_of_the_folder(tmp_path: Path, job: str) -> None:
    records = Records(tmp_path, "broker-1")
    with pytest.raises(FileNotFoundError, match="not the key"):
        records.save(replace(RECORD, key=Key(job, 1)))
