# SPDX-License-Identifier: BSD-3-Clause
"""What every test may lean on; fixtures of one part live beside that part's tests."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

# A warning here is ours to mend; elsewhere it may be a third party's.
OURS = ("core", "store", "broker", "client")

# How long an example takes says something of the machine, not of the code.
hypothesis.settings.register_profile("ours", deadline=None)
hypothesis.settings.load_profile("ours")

# Settings of the machine or of an outer Jupyter that would leak into what a test starts.
STRAY = ("GPUBROKER_", "JUPYTERHUB_", "JPY_", "JUPYTER_", "CUDA_", "NVIDIA_")


def pytest_configure() -> None:
    """Drop stray settings, and find the programs that ``make setup`` put under .demo/."""
    for name in [name for name in os.environ if name.startswith(STRAY)]:
        del os.environ[name]
    ours = (ROOT / ".venv/bin", ROOT / ".demo/npm/node_modules/.bin")
    os.environ["PATH"] = os.pathsep.join([*map(str, ours), os.environ.get("PATH", os.defpath)])


def is_ours(path: Path) -> bool:
    """Whether a test file belongs to a part in which a warning is an error."""
    part = path.relative_to(ROOT / "tests").parts[0]
    return part.removeprefix("test_").removesuffix(".py") in OURS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make warnings errors in the parts that are all ours."""
    for item in items:
        if is_ours(item.path):
            item.add_marker(pytest.mark.filterwarnings("error"), append=False)


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets (107 bytes), removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gb-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    assert isinstance(port, int)
    return port


@pytest.fixture(autouse=True)
def settings_stay_as_they_were() -> Iterator[None]:
    """Fail the test that leaves a setting of ours behind for the next one."""
    yield
    left = sorted(name for name in os.environ if name.startswith(("GPUBROKER_", "CUDA_")))
    assert not left, f"left in the environment (use monkeypatch.setenv): {', '.join(left)}"


@pytest.fixture(autouse=True, scope="module")
def leaks_are_found_where_they_happen() -> Iterator[None]:
    """Collect what a module left open in that module, not in one that makes warnings errors."""
    yield
    gc.collect()
