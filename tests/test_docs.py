# SPDX-License-Identifier: BSD-3-Clause
"""The pages that are generated say what the code says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from .house.tree import PACKAGE, ROOT, sources


def _run(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ".ci/docs.py", *options]
    env = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


def test_the_generated_pages_are_those_of_the_code() -> None:
    done = _run(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_that_was_edited_by_hand_is_noticed_and_written_anew(tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    page = tmp_path / "docs/states.md"
    page.write_text("by hand")
    assert "docs/states.md is not what the code says" in _run(tmp_path, "--check").stdout
    assert _run(tmp_path).returncode == 0
    assert page.read_bytes() == (ROOT / "docs/states.md").read_bytes()


def test_the_index_of_the_reference_names_every_page() -> None:
    index = (ROOT / "docs/reference/index.md").read_text("utf-8")
    pages = [path.name for path in (ROOT / "docs/reference").iterdir() if path.name != "index.md"]
    assert [name for name in pages if f"({name})" not in index] == []


def test_every_variable_of_ours_is_on_the_page_of_variables() -> None:
    ours = re.compile(r"\bGPUBROKER_[A-Z]+\b")
    page = set(ours.findall((ROOT / "docs/reference/environment.md").read_text("utf-8")))
    code = {
        name for source in sources() if source.inside(PACKAGE) for name in ours.findall(source.text)
    }
    assert page == code
