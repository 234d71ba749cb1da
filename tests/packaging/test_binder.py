# SPDX-License-Identifier: BSD-3-Clause
"""binder/: what repo2docker would run, run; and its notebook, cell by cell."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.ui.lab import Lab, Person
from tests.until import until

from .conftest import BUILD_S, Environment
from .kernel import Kernel

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(2 * BUILD_S)]


@pytest.fixture
def lab(environment: Environment, checkout: Path, visitor: Person) -> Lab:
    """JupyterLab, started by ``start`` as the image's entry point does."""
    environment.run("binder/postBuild", cwd=checkout)
    visitor.devices = ""
    return visitor.lab(through=(str(checkout / "binder/start"),))


def test_the_sidebar_and_its_broker_with_eight_gpus_are_there(lab: Lab) -> None:
    page = lab.request("GET", "lab").raise_for_status().text
    entry = re.search(r'"load": "(static/remoteEntry\.\w+\.js)", "name": "jupyter-gpubroker"', page)
    assert entry, "JupyterLab does not load the sidebar"
    found = lab.request("GET", f"lab/extensions/jupyter-gpubroker/{entry[1]}")
    assert found.is_success
    until(lambda: lab.state()["broker"]["ok"], timeout=120, what="the broker")
    assert [len(node["devices"]) for node in lab.state()["nodes"]] == [4, 4]


def test_a_postbuild_without_the_sidebar_fails(
    environment: Environment, checkout: Path, tmp_path: Path
) -> None:
    disabled = {"disabledExtensions": {"jupyter-gpubroker": True}}
    (tmp_path / "labconfig").mkdir()
    (tmp_path / "labconfig/page_config.json").write_text(json.dumps(disabled))
    command = ("env", f"JUPYTER_CONFIG_DIR={tmp_path}", "binder/postBuild")
    with pytest.raises(AssertionError, match="does not show jupyter-gpubroker"):
        environment.run(*command, cwd=checkout)


def test_the_notebook_tells_its_story(lab: Lab, checkout: Path) -> None:
    notebook = json.loads((checkout / "binder/demo.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    until(lambda: lab.state()["broker"]["ok"], timeout=120, what="the broker")
    kernel = Kernel(lab)
    *before, again, jobs = cells
    first = "".join(kernel.run(cell) for cell in before)
    process = re.search(r"in process \d+", first)
    assert process
    until(
        lambda: lab.state()["session"]["state"] == "parked",
        timeout=120,
        what="the session to be parked for the second job",
    )
    assert f"still here {process[0]}" in kernel.run(again)
    assert "two" in kernel.run(jobs)
    kernel.close()


def test_the_programs_are_executable() -> None:
    assert all(os.access(ROOT / "binder" / name, os.X_OK) for name in ("postBuild", "start"))
