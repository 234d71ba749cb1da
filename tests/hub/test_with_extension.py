# SPDX-License-Identifier: BSD-3-Clause
"""A real Hub whose servers load our extension: a GPU from the form to the kernel's lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.until import until

from .brokers import POLICY
from .realhub import RealHub

pytestmark = [pytest.mark.hub, pytest.mark.timeout(600)]


@pytest.fixture(params=["attach", "start"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealHub]:
    """One GPU; nobody speaks in the place of the extension."""
    made = RealHub(
        tmp_path,
        devices="simulated:1x1",
        policy=POLICY,
        gpu_wait=request.param,
    )
    try:
        yield made.start()
    finally:
        made.close()


def test_a_server_gets_its_gpu_and_the_next_one_gets_it_after_that(hub: RealHub) -> None:
    hub.spawn("ana/", gpus="1")
    pid = hub.ready("ana/")
    first = hub.running("ana/")
    assert first.incarnation == int(hub.environment("ana/")["GPUBROKER_INCARNATION"])

    hub.spawn("bo/", gpus="1")
    waiting = until(lambda: hub.session("bo/"), what="a place in the queue")
    assert waiting.state == "queued"
    hub.cancel("ana/")
    hub.ready("bo/")
    second = hub.running("bo/")
    assert second.id == waiting.id
    assert first.lease is not None
    assert second.lease is not None
    assert second.lease.shares == first.lease.shares
    assert hub.ready("bo/") != pid
