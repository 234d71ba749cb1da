# SPDX-License-Identifier: BSD-3-Clause
"""The real command line against a real broker: submit, follow, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.until import until

from .brokers import SoloBroker

SLOW = """
import os, sys, threading
print("begin", flush=True)
for n in range(1, 10_000):
    print(f"line {n} €", flush=True)
    if os.path.exists("go"):
        break
    threading.Event().wait(0.02)
print("end", sys.argv[1], os.environ["COLOUR"])
"""


def command(broker: SoloBroker, *argv: str) -> list[str]:
    return [sys.executable, "-m", "jupyter_gpubroker.app", argv[0], "--url", broker.url, *argv[1:]]


def environment(broker: SoloBroker) -> dict[str, str]:
    home = str(broker.folder / "home")
    return {**broker.environment, "COLOUR": "red", "MY_TOKEN": "t", "JUPYTER_CONFIG_DIR": home}


def run(broker: SoloBroker, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(broker, *argv),
        cwd=broker.folder,
        env=environment(broker),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_script_is_followed_over_a_broker_that_is_killed(
    broker: SoloBroker, tmp_path: Path
) -> None:
    broker.start().client().close()
    (broker.folder / "slow.py").write_text(SLOW)
    done = run(broker, "submit", "--json", "--time", "10m", "--", "python", "slow.py", "arg")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    assert job["dropped"] == ["MY_TOKEN"]
    (broker.folder / "slow.py").write_text("raise SystemExit('edited after the submit')")
    out = tmp_path / "out"
    with out.open("wb") as file, (tmp_path / "err").open("wb") as err:
        follower = subprocess.Popen(
            command(broker, "logs", "--follow", job["id"]),
            env=environment(broker),
            stdout=file,
            stderr=err,
        )
    try:
        until(lambda: "line 5 " in out.read_text(), timeout=120, what="the log to come")
        broker.kill()
        seen = len(out.read_text().splitlines())
        broker.start().client().close()
        until(
            lambda: len(out.read_text().splitlines()) > seen + 5,
            timeout=120,
            what="the log to go on",
        )
        (broker.folder / "go").touch()
        assert follower.wait(120) == 0, (tmp_path / "err").read_text()
    finally:
        follower.kill()
    lines = out.read_text().splitlines()
    assert lines[0] == "begin"
    assert lines[-1] == "end arg red"
    assert lines[1:-1] == [f"line {n} €" for n in range(1, len(lines) - 1)]
    assert "does not answer" in (tmp_path / "err").read_text()


def test_exit_codes_tell_what_happened(broker: SoloBroker) -> None:
    assert run(broker, "queue").returncode == 3
    broker.start().client().close()
    assert run(broker, "queue").returncode == 0
    assert run(broker, "submit", "--gpus", "9", "true").returncode == 1
    assert run(broker, "submit").returncode == 2
    failing = run(broker, "submit", "--json", "--max-restarts", "0", "false")
    job = json.loads(failing.stdout)["id"]
    assert run(broker, "logs", "--follow", job).returncode == 1
    assert "failed" in run(broker, "show", job).stdout
    findings = json.loads(run(broker, "doctor", "--json").stdout)["findings"]
    gpus = next(item for item in findings if item["name"] == "GPUs")
    assert gpus["text"].startswith("2 nodes, 8 GPUs, 8 usable")


def test_a_reader_that_has_enough_ends_the_command_quietly(broker: SoloBroker) -> None:
    broker.start().client().close()
    writing, reading = os.pipe()
    os.close(writing)
    process = subprocess.Popen(
        command(broker, "nodes"), env=environment(broker), stdout=reading, stderr=subprocess.PIPE
    )
    os.close(reading)
    _, err = process.communicate(timeout=120)
    assert b"Traceback" not in err
    assert b"Exception" not in err
