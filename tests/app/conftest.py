# SPDX-License-Identifier: BSD-3-Clause
"""A broker for each test that wants one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from .brokers import SoloBroker


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[SoloBroker]:
    """Not started yet; whatever it left running is ended afterwards."""
    made = SoloBroker(short_tmp)
    yield made
    made.close()
    for process in psutil.process_iter():
        try:
            if str(short_tmp) in " ".join(process.cmdline()) or _of_a_job(process, short_tmp):
                process.kill()
        except psutil.Error:
            continue


def _of_a_job(process: psutil.Process, folder: Path) -> bool:
    return process.environ().get("GPUBROKER_SPOOL", "").startswith(str(folder))
