# SPDX-License-Identifier: BSD-3-Clause
"""What `make` says when the machine lacks something, and how it borrows the machine's torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.outcomes import Failed, Skipped

from jupyter_gpubroker.app.commands.bench import BENCHMARKS, DATALESS

from . import needs
from .conftest import is_ours
from .house.tree import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    return tmp_path


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def _setup(checkout: Path, step: str, python: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHON": python}
    command = [".ci/setup", step]
    return subprocess.run(
        command, cwd=checkout, env=env, capture_output=True, text=True, check=False
    )


def test_an_old_python_is_refused_with_a_way_out(checkout: Path) -> None:
    old = 'case "$*" in --version) echo Python 3.9.2;; *version_info*) exit 1;; esac'
    done = _setup(checkout, "venv", _script(checkout / "old", old))
    assert done.returncode == 1
    assert "Python 3.9.2 is too old, it takes 3.11 or newer: make PYTHON=" in done.stderr
    assert not (checkout / ".demo").exists()


def test_a_python_without_ensurepip_names_the_debian_package(checkout: Path) -> None:
    bare = f'case "$*" in *ensurepip*) exit 1;; *) exec {sys.executable} "$@";; esac'
    done = _setup(checkout, "venv", _script(checkout / "bare", bare))
    assert done.returncode == 1
    assert "sudo apt-get install python3-venv" in done.stderr


def test_a_missing_python_names_the_debian_packages(checkout: Path) -> None:
    done = _setup(checkout, "venv", "python-that-is-not-here")
    assert done.returncode == 1
    assert "sudo apt-get install python3 python3-venv" in done.stderr


def _distribution(site: Path, name: str, module: str, requires: str = "") -> None:
    info = site / f"{name.replace('-', '_')}-1.dist-info"
    info.mkdir(parents=True)
    needs_line = f"Requires-Dist: {requires}\n" if requires else ""
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{needs_line}"
    )
    info.joinpath("top_level.txt").write_text(f"{module}\n")
    (site / module).mkdir()
    (site / module / "__init__.py").write_text(f"name = {name!r}\n")


def test_the_torch_of_the_machine_is_borrowed_with_what_it_needs_and_nothing_else(
    tmp_path: Path,
) -> None:
    site, venv = tmp_path / "site", tmp_path / "venv"
    _distribution(site, "torch", "torch", requires="Some.Helper>=1; python_version > '3'")
    _distribution(site, "some-helper", "helper")
    _distribution(site, "pytest-plugin", "plugin")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = venv / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    # -S: this environment's own packages are not the machine's.
    command = [sys.executable, "-S", ROOT / ".ci/link_torch.py", tmp_path / "borrowed", venv]
    subprocess.run(command, env={"PYTHONPATH": str(site)}, check=True)
    assert (packages / "machine-torch.pth").read_text() == f"{tmp_path / 'borrowed'}\n"
    borrowed = sorted(path.name for path in (tmp_path / "borrowed").iterdir())
    assert borrowed == ["helper", "torch"]
    assert (tmp_path / "borrowed/torch/__init__.py").read_text() == "name = 'torch'\n"


def test_a_missing_program_skips_with_the_line_that_enables_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CI", "")
    with pytest.raises(Skipped, match="needs no-such-program; enable with: apt-get install it"):
        needs.program("no-such-program", enable="apt-get install it")


def test_a_missing_program_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Failed, match="needs no-such-program"):
        needs.program("no-such-program", enable="apt-get install it")
    with pytest.raises(Failed, match=r"no_such_module; .*make setup"):
        needs.module("no_such_module")


def test_a_program_off_the_path_is_found_in_its_folders(tmp_path: Path) -> None:
    for version in ("9", "15"):
        (tmp_path / version / "bin").mkdir(parents=True)
        _script(tmp_path / version / "bin" / "server-of-a-test", "true")
    found = needs.program("server-of-a-test", enable="x", folders=f"{tmp_path}/*/bin")
    assert Path(found).parent.parent.name in {"9", "15"}


def test_warnings_are_errors_in_the_parts_that_are_all_ours() -> None:
    ours = ("tests/core/test_x.py", "tests/test_client.py", "tests/store/sql/test_x.py")
    assert all(is_ours(ROOT / path) for path in ours)
    assert not is_ours(ROOT / "tests/hub/test_x.py")


def test_every_experiment_is_one_of_make_bench() -> None:
    command = ["make", "--dry-run", "bench", "DATA=there"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for id_ in BENCHMARKS:
        data = "" if id_ in DATALESS else "--data there "
        assert f"jupyter gpubroker bench {id_} {data}--json" in done.stdout, id_
