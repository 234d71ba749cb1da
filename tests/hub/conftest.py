# SPDX-License-Identifier: BSD-3-Clause
"""A broker, and a Hub in front of it, for each test that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests import needs

from .brokers import Broker
from .mockhub import Hub


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """One simulated GPU, started."""
    made = Broker(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def hub(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    """Not started yet."""
    needs.proxy()
    monkeypatch.chdir(broker.folder)  # the Hub leaves its files where it stands
    made = Hub(broker)
    yield made
    await made.stop()
