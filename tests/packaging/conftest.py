# SPDX-License-Identifier: BSD-3-Clause
"""The package built and installed from a copy of the tree, once for all tests here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import needs
from tests.conftest import ROOT
from tests.house.tree import files
from tests.ui.lab import Person

BUILD_S = 900


@dataclass(frozen=True)
class Environment:
    """A virtual environment that holds our package and what it asks for, and nothing else."""

    folder: Path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin/python")

    @property
    def environ(self) -> dict[str, str]:
        """What a shell in which it is activated has set; no setting of ours."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(self.folder)}

    def run(self, *command: str, cwd: Path) -> str:
        """Run a command in it; what it prints. AssertionError with that if it fails."""
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=BUILD_S,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}"
        return done.stdout


@pytest.fixture(scope="package")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of everything that is, or would be, committed."""
    needs.program("node", enable="make setup")
    needs.program("git", enable="sudo apt-get install git")
    copy = tmp_path_factory.mktemp("checkout")
    for name in files():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    yield copy
    shutil.rmtree(copy)  # hundreds of MB, which pytest would keep for three runs


@pytest.fixture(scope="package")
def environment(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """As repo2docker makes it: a new environment, and ``binder/requirements.txt`` in it."""
    made = Environment(tmp_path_factory.mktemp("environment"))
    subprocess.run([sys.executable, "-m", "venv", made.folder], check=True)
    made.run("pip", "install", "--quiet", "-r", "binder/requirements.txt", cwd=checkout)
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="package")
def wheel(checkout: Path, environment: Environment) -> Path:
    """The wheel, built in the copy."""
    made = checkout / "dist"
    command = ("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(made), ".")
    environment.run(*command, cwd=checkout)
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture
def visitor(environment: Environment) -> Iterator[Person]:
    """Somebody who works in that environment."""
    person = Person(Path(tempfile.mkdtemp(prefix="gb-", dir="/tmp")), python=environment.python)
    yield person
    person.leave()
    shutil.rmtree(person.folder, ignore_errors=True)
