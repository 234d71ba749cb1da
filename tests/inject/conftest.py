# SPDX-License-Identifier: BSD-3-Clause
"""Kernels with our folder on PYTHONPATH, and a broker that they can talk to."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpubroker.inject import FOLDER

from .. import needs
from ..extension.standin import StandIn, serving
from .notebook import Notebook

Start = Callable[..., Notebook]


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of a venv that holds ipykernel and nothing of ours."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*install, "ipykernel"], check=False).returncode:
        needs.missing("ipykernel from a package index", "python -m pip install ipykernel")
    return str(python)


@pytest.fixture
def broker() -> Iterator[StandIn]:
    """A broker whose state the test writes."""
    logging.getLogger("tornado.access").setLevel(logging.WARNING)
    with serving(StandIn()) as standin:
        yield standin


@pytest.fixture
def start(broker: StandIn, tmp_path: Path) -> Iterator[Start]:
    """Start kernels as the provisioner would: with this interpreter, or another."""
    notebooks: list[Notebook] = []

    def _start(python: str = sys.executable, **env: str) -> Notebook:
        every = {
            "PYTHONPATH": FOLDER,
            "GPUBROKER_URL": broker.url,
            "GPUBROKER_SESSION": broker.key,
            "GPUBROKER_KERNEL": "k-1",
            "GPUBROKER_INCARNATION": "7",
            "JUPYTERHUB_API_TOKEN": "secret",
            "CUDA_VISIBLE_DEVICES": "",
            "HOME": str(tmp_path),
            "IPYTHONDIR": str(tmp_path / "ipython"),
            **env,
        }
        notebooks.append(Notebook(python, every, cwd=str(tmp_path)))
        return notebooks[-1]

    yield _start
    for notebook in notebooks:
        notebook.close()


@pytest.fixture
def notebook(start: Start) -> Notebook:
    """A kernel of the test's own interpreter."""
    return start()
