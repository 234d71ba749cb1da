# SPDX-License-Identifier: BSD-3-Clause
"""``jupyter gpubroker policy``."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpubroker import policy

from .line import Line


def test_a_policy_file_is_checked_without_a_broker(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUBROKER_URL", "http://127.0.0.1:9")
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(policy.DEFAULT_DOCUMENT)
    bad.write_text(policy.DEFAULT_DOCUMENT.replace("grace:", "grase:", 1))
    done = line("policy", "check", str(good))
    assert done.code == 0
    assert "interactive batch" in done.out
    assert line("policy", "--json", "check", str(good)).json["queues"] == ["default"]
    done = line("policy", "check", str(bad))
    assert done.code == 2
    number = bad.read_text()[: bad.read_text().index("grase")].count("\n") + 1
    assert f"classes.interactive.grase: unknown key at line {number} in " in done.err
    assert str(bad) in done.err
    assert "known keys: " in done.err
    assert " grace, " in done.err
    bad.write_text(bad.read_text().replace("waiting: 5", "waiting: five"))
    first, second = line("policy", "check", str(bad)).err.splitlines()
    assert f"grase: unknown key at line {number}" in first
    assert first.endswith(f" in {bad}")
    assert second.startswith("  classes.interactive.waiting: must be a whole number")
    done = line("policy", "check", "none.yaml")
    assert done.code == 2
    assert done.err.endswith("file: none.yaml cannot be read: No such file or directory\n")


def test_a_policy_is_shown_and_applied_by_admins(line: Line, tmp_path: Path) -> None:
    shown = line("policy", "show")
    assert shown.code == 0
    assert shown.out.startswith("# revision 0 by default")
    file = tmp_path / "policy.yaml"
    file.write_text(shown.out.replace("grace: 60s", "grace: 7s"))
    assert line("policy", "apply", str(file)).code == 1
    line.thread.house.hub.user("ana", admin=True, server="")
    done = line("policy", "apply", str(file))
    assert (done.code, done.out) == (0, "revision 1 is in force\n")
    assert line.desk.world.policy.classes["batch"].terms.grace == 7


def test_what_a_file_would_change_is_told_by_key(line: Line, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("# mine\n" + line("policy", "show").out)
    assert line("policy", "diff", str(file)).out == "nothing would change\n"
    file.write_text(file.read_text().replace("grace: 60s", "grace: 7s"))
    done = line("policy", "diff", str(file))
    assert (done.code, done.out) == (1, "classes.batch.grace: 60s → 7s\n")
    (told,) = line("policy", "--json", "diff", str(file)).json["differences"]
    assert told == {"key": "classes.batch.grace", "old": "60s", "new": "7s"}
    assert line("policy", "diff", "none.yaml").code == 2
