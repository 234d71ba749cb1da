# SPDX-License-Identifier: BSD-3-Clause
"""The wheel: complete, nothing astray, and it works without a Hub where only it is installed."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import files
from tests.ui.lab import Person
from tests.until import until

from .conftest import BUILD_S, Environment
from .kernel import Kernel

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(2 * BUILD_S)]

LAB = "share/jupyter/labextensions/jupyter-gpubroker"
SHIPPED = (
    rf"{LAB}/static/remoteEntry\.[0-9a-f]+\.js",
    rf"{LAB}/static/style\.js",
    rf"{LAB}/package\.json",
    rf"{LAB}/install\.json",
    rf"{LAB}/schemas/jupyter-gpubroker/sidebar\.json",
    r"etc/jupyter/jupyter_server_config\.d/jupyter_gpubroker\.json",
)
BUILT = (*SHIPPED, rf"{LAB}/static/[\w.-]+\.(js|json)", rf"{LAB}/schemas/.*/package\.json")


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    """What is in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_is_for_every_machine(wheel: Path) -> None:
    assert re.fullmatch(r"jupyter_gpubroker-[\d.]+-py3-none-any\.whl", wheel.name)


def test_every_file_of_the_package_is_in_the_wheel_and_no_other(names: list[str]) -> None:
    config = "jupyter_gpubroker/server-config/"
    ours = {name for name in files() if name.startswith("jupyter_gpubroker/")}
    expected = {name for name in ours if not name.startswith(config)}
    assert {name for name in names if name.startswith("jupyter_gpubroker/")} == expected
    assert "jupyter_gpubroker/py.typed" in expected
    assert "jupyter_gpubroker/inject/gpubroker/__init__.py" in expected
    assert "jupyter_gpubroker/store/migrations/versions/v0001_first.py" in expected


def test_the_built_sidebar_and_the_server_extension_are_where_jupyter_looks(
    names: list[str],
) -> None:
    data = [name.split(".data/data/")[1] for name in names if ".data/data/" in name]
    for pattern in SHIPPED:
        assert [name for name in data if re.fullmatch(pattern, name)], pattern
    astray = [name for name in data if not any(re.fullmatch(p, name) for p in BUILT)]
    assert not astray
    elsewhere = [n for n in names if not re.match(r"jupyter_gpubroker(/|-[\d.]+\.)", n)]
    assert not elsewhere


def test_the_wheel_alone_gives_a_server_its_broker_and_a_kernel_its_magics(
    wheel: Path, environment: Environment, visitor: Person, tmp_path: Path
) -> None:
    environment.run(
        *("pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)), cwd=tmp_path
    )
    lab = visitor.lab()
    until(lambda: lab.state()["broker"]["ok"], timeout=120, what="the broker")
    assert len(lab.state()["nodes"]) == 2
    kernel = Kernel(lab)
    assert "Nothing waits in the queue." in kernel.run("%gpu_queue")
    where = kernel.run("import jupyter_gpubroker; print(jupyter_gpubroker.__file__)")
    assert where.startswith(str(environment.folder)), "not the checkout"
    kernel.close()
