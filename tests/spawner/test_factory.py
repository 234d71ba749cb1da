# SPDX-License-Identifier: BSD-3-Clause
"""Spawners over any other; what every Hub imports is light and is a class."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner, Spawner
from traitlets.config import Config

from jupyter_gpubroker.spawner import (
    GPUBrokerMixin,
    GPUBrokerSpawner,
    SimpleGPUBrokerSpawner,
    gpu_spawner,
)
from tests.conftest import ROOT


@pytest.mark.parametrize(
    "base", ["simple", "jupyterhub.spawner.SimpleLocalProcessSpawner", SimpleLocalProcessSpawner]
)
def test_a_base_is_named_by_entry_point_full_name_or_class(base: str | type) -> None:
    made = gpu_spawner(base)
    assert issubclass(made, GPUBrokerMixin)
    assert issubclass(made, SimpleLocalProcessSpawner)
    assert made.__name__ == "GPUBrokerSimpleLocalProcessSpawner"


def test_a_spawner_that_has_gpus_already_stays_as_it_is() -> None:
    assert gpu_spawner(GPUBrokerSpawner) is GPUBrokerSpawner


@pytest.mark.parametrize("base", ["nowhere", "os.path", "no.such.Module", int])
def test_what_is_no_spawner_is_refused(base: str | type) -> None:
    with pytest.raises(ValueError, match=r"(?i)spawner"):
        gpu_spawner(base)


def test_every_section_of_the_configuration_applies() -> None:
    config = Config()
    config.Spawner.http_timeout = 71
    config.Spawner.start_timeout = 60
    config.SimpleLocalProcessSpawner.home_dir_template = "/h/{username}"
    config.GPUBrokerMixin.broker_url = "http://127.0.0.1:1/services/gpubroker"
    config.GPUBrokerMixin.start_timeout = 1000
    made = SimpleGPUBrokerSpawner(config=config)
    assert made.http_timeout == 71
    assert made.home_dir_template == "/h/{username}"
    assert made.broker_url.endswith("gpubroker")
    assert made.start_timeout == 1000, "the mixin's section wins over Spawner's"


def test_a_wait_has_no_short_limit_by_default() -> None:
    made = SimpleGPUBrokerSpawner()
    assert isinstance(made, Spawner)
    assert made.start_timeout > 30 * 86400
    assert made.server_start_timeout == 120


def test_the_entry_point_is_a_class_and_imports_nothing_heavy() -> None:
    found = EntryPoint(
        "gpubroker", "jupyter_gpubroker.spawner:GPUBrokerSpawner", "jupyterhub.spawners"
    ).load()
    assert isinstance(found, type)
    assert issubclass(found, LocalProcessSpawner)
    code = (
        "import sys, jupyterhub.spawner; before = set(sys.modules); "
        "import jupyter_gpubroker.spawner; "
        "print(sorted({n.split('.')[0] for n in set(sys.modules) - before}))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert said.stdout.strip() == "['jupyter_gpubroker']"


def test_the_incarnation_outlives_a_restart_of_the_hub_and_the_end_of_a_server() -> None:
    first = SimpleGPUBrokerSpawner(incarnation=7)
    again = SimpleGPUBrokerSpawner()
    again.load_state(first.get_state())
    assert again.incarnation == 7
    again.clear_state()
    assert again.get_state() == {"gpubroker": {"incarnation": 7}}
    again.load_state({})
    assert again.incarnation == 0
