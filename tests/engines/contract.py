# SPDX-License-Identifier: BSD-3-Clause
"""What every engine owes the broker. An engine's tests subclass ``EngineContract``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from jupyter_gpubroker.core.model import Key
from jupyter_gpubroker.engines import Engine, Launch, Phase, Report, StartRefused, Stop

from ..until import until_async

KEY = Key("b-contract", 1)
IGNORES_TERM = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, f"grandchild {os.getpid()}\\n".encode())  # whole: others print as well
os.write(1, b"up\\n")
while True:
    signal.pause()
"""


class Ground(Protocol):
    """Where an engine under test stands."""

    python: str
    """An interpreter that its jobs can run."""

    def engine(self) -> Engine:
        """An engine over the same state: each is another life of the broker."""
        ...

    def launch(self, *argv: str, nodes: int = 1, **more: object) -> Launch:
        """A Launch that this engine can start, in the attempt's folder of KEY."""
        ...


async def ended(engine: Engine, key: Key = KEY) -> Report:
    """Wait until the engine has proof that all of it is gone."""

    async def look() -> Report | None:
        report = (await engine.poll()).reports[key]
        return report if report.phase is Phase.EXITED else None

    report = await until_async(look, what=f"the end of {key}")
    assert report
    return report


async def printed(engine: Engine, text: str, key: Key = KEY, rank: int = 0, times: int = 1) -> str:
    """Wait until a rank has printed ``text`` so often; all that it printed."""

    async def look() -> str:
        try:
            data = (await engine.logs(key, rank, 0, 1_000_000)).data.decode()
        except FileNotFoundError:
            return ""
        return data if data.count(text) >= times else ""

    return await until_async(look, what=f"{text!r} of rank {rank}")


def alive(pid: int) -> bool:
    """True while a process of that number runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def pids_of(job: str) -> list[int]:
    """Every living process that was launched for a job."""
    mark, found = f"GPUBROKER_JOB={job}".encode(), []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if alive(pid)]


@contextmanager
def child(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A process of the test with pipes to it; killed at the end of the block."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """The next line of a child."""
    assert process.stdout
    return process.stdout.readline().rstrip("\n")


def python(code: str, program: str = sys.executable) -> Sequence[str]:
    """A command that runs ``code``."""
    return (program, "-c", code)


@pytest.mark.asyncio
class EngineContract:
    """Needs a fixture ``ground``."""

    @pytest.mark.parametrize(
        ("script", "code"),
        [("exit 0", 0), ("echo oops >&2; exit 7", 7), ("kill -9 $$", -9)],
    )
    async def test_an_exit_is_reported_with_its_code(
        self, ground: Ground, script: str, code: int
    ) -> None:
        engine = ground.engine()
        await engine.start(KEY, ground.launch("sh", "-c", script))
        report = await ended(engine)
        assert (report.codes, report.code) == ((code,), code)
        assert report.failed_rank == (0 if code else None)
        assert report.text == {0: "", 7: "oops", -9: "it ended with exit code -9"}[code]

    async def test_a_missing_program_ends_with_127_and_says_so(self, ground: Ground) -> None:
        engine = ground.engine()
        await engine.start(KEY, ground.launch("/no/such/program"))
        report = await ended(engine)
        assert report.code == 127
        assert "/no/such/program" in report.text

    async def test_a_running_attempt_is_reported_with_its_process(self, ground: Ground) -> None:
        engine = ground.engine()
        await engine.start(KEY, ground.launch("sh", "-c", "echo $$; exec sleep 600"))
        pid = int(await printed(engine, "\n"))
        report = (await engine.poll()).reports[KEY]
        assert report.phase is Phase.RUNNING
        assert report.code is None
        assert pid in [process.pid for process in report.processes]

    async def test_starting_twice_runs_once(self, ground: Ground) -> None:
        first, second = ground.engine(), ground.engine()
        launch = ground.launch("sh", "-c", "echo ran $$")
        await first.start(KEY, launch)
        await first.start(KEY, launch)
        await second.start(KEY, launch)
        await ended(second)
        await second.start(KEY, launch)
        assert (await printed(second, "ran")).count("ran") == 1

    async def test_an_ended_and_forgotten_key_is_never_started_again(self, ground: Ground) -> None:
        engine = ground.engine()
        launch = ground.launch("sh", "-c", "echo ran $$")
        await engine.start(KEY, launch)
        await ended(engine)
        await engine.forget(KEY)
        await engine.start(KEY, launch)
        later = ground.engine()
        await later.start(KEY, launch)
        assert KEY not in (await later.poll()).reports
        assert (await printed(later, "ran")).count("ran") == 1

    async def test_what_is_old_leaves_no_file_unless_its_job_lives(self, ground: Ground) -> None:
        engine = ground.engine()
        script = "mkdir -p a/b && touch a/b/c && chmod 0500 a/b a; echo done"
        launch = ground.launch("sh", "-c", script)
        await engine.start(KEY, launch)
        await ended(engine)
        await engine.prune(time.time() + 60, ())
        assert await printed(engine, "done"), "it is not forgotten yet"
        await engine.forget(KEY)
        await engine.prune(time.time() - 60, ())
        await engine.prune(time.time() + 60, [KEY.job])
        assert await engine.ranks(KEY) == [0]

        await engine.prune(time.time() + 60, ["b-other"])
        with pytest.raises(FileNotFoundError):
            await engine.logs(KEY, 0, 0, 10)
        *above, job, _attempt = Path(launch.folder).parts
        assert job not in os.listdir(Path(*above))

    async def test_a_key_is_not_forgotten_before_it_ended(self, ground: Ground) -> None:
        engine = ground.engine()
        await engine.start(KEY, ground.launch("sleep", "600"))
        await engine.forget(KEY)
        assert (await engine.poll()).reports[KEY].phase is Phase.RUNNING

    async def test_unknown_keys_are_ignored(self, ground: Ground) -> None:
        engine, unknown = ground.engine(), Key("b-nobody", 3)
        for how in (Stop.TERM, Stop.KILL):
            await engine.stop(unknown, how)
        await engine.signal(unknown, signal.SIGUSR1)
        await engine.forget(unknown)
        assert unknown not in (await engine.poll()).reports
        with pytest.raises(FileNotFoundError):
            await engine.logs(unknown, 0, 0, 10)

    async def test_a_refused_start_leaves_nothing(self, ground: Ground, tmp_path: Path) -> None:
        engine = ground.engine()
        with pytest.raises(StartRefused, match="nowhere"):
            await engine.start(KEY, ground.launch("true", cwd=str(tmp_path / "nowhere")))
        assert KEY not in (await engine.poll()).reports
        await engine.start(KEY, ground.launch("true"))
        assert (await ended(engine)).code == 0

    async def test_term_asks_and_the_program_may_save(self, ground: Ground) -> None:
        engine = ground.engine()
        code = (
            "import os, signal, sys\n"
            "def leave(*_):\n"
            "    print(open(os.environ['GPUBROKER_SPOOL'] + '/stop').read())\n"
            "    sys.exit(75)\n"
            "signal.signal(signal.SIGTERM, leave)\n"
            "print('up', flush=True)\n"
            "signal.pause()"
        )
        await engine.start(KEY, ground.launch(*python(code, ground.python)))
        await printed(engine, "up")
        await engine.stop(KEY, Stop.TERM)
        assert (await ended(engine)).code == 75
        assert '"reason"' in await printed(engine, "reason")
        await engine.stop(KEY, Stop.TERM)
        await engine.stop(KEY, Stop.KILL)

    async def test_kill_ends_the_whole_tree(self, ground: Ground) -> None:
        engine = ground.engine()
        await engine.start(KEY, ground.launch(*python(IGNORES_TERM, ground.python)))
        await printed(engine, "up")
        grandchild = int((await printed(engine, "grandchild")).split("grandchild ")[1].split()[0])
        await engine.stop(KEY, Stop.TERM)
        assert (await engine.poll()).reports[KEY].phase is Phase.RUNNING
        await engine.stop(KEY, Stop.KILL)
        assert (await ended(engine)).code == -9
        assert not alive(grandchild)

    async def test_what_a_program_leaves_behind_ends_with_it(self, ground: Ground) -> None:
        engine = ground.engine()
        script = "setsid sleep 600 & echo child $!; exit 3"
        await engine.start(KEY, ground.launch("sh", "-c", script))
        assert (await ended(engine)).code == 3
        assert not alive(int((await printed(engine, "child")).split()[1]))

    async def test_a_signal_reaches_the_program(self, ground: Ground) -> None:
        engine = ground.engine()
        script = "trap 'echo got it; exit 4' USR1; echo up; while :; do sleep 0.05; done"
        await engine.start(KEY, ground.launch("sh", "-c", script))
        await printed(engine, "up")
        await engine.signal(KEY, signal.SIGUSR1)
        assert (await ended(engine)).code == 4
        await printed(engine, "got it")

    async def test_another_life_of_the_broker_takes_over(self, ground: Ground) -> None:
        await ground.engine().start(KEY, ground.launch("sleep", "600"))
        later = ground.engine()
        assert (await later.poll()).reports[KEY].phase is Phase.RUNNING
        await later.stop(KEY, Stop.TERM)
        assert (await ended(later)).code == -15
        last = ground.engine()
        assert (await last.poll()).reports[KEY] == (await later.poll()).reports[KEY]

    async def test_a_look_says_when_it_began(self, ground: Ground) -> None:
        engine = ground.engine()
        first, second = await engine.poll(), await engine.poll()
        assert first.began <= second.began

    async def test_logs_are_whole_and_resumable(self, ground: Ground) -> None:
        engine = ground.engine()
        script = "i=0; while [ $i -lt 3000 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done"
        await engine.start(KEY, ground.launch("sh", "-c", script))
        await ended(engine)
        await engine.forget(KEY)
        data, offset = b"", 0
        while True:
            chunk = await engine.logs(KEY, 0, offset, 1000)
            if not chunk.data:
                break
            assert len(chunk.data) <= 1000
            data, offset = data + chunk.data, chunk.next_offset
        expected = "".join(f"line {i}\nerr {i}\n" for i in range(3000)).encode()
        assert data == expected
        assert (chunk.next_offset, chunk.size) == (len(expected), len(expected))
        assert list(await engine.ranks(KEY)) == [0]

    async def test_a_rank_without_a_log_has_none(self, ground: Ground) -> None:
        engine = ground.engine()
        await engine.start(KEY, ground.launch("true"))
        await ended(engine)
        with pytest.raises(FileNotFoundError):
            await engine.logs(KEY, 7, 0, 10)

    async def test_submitted_files_are_there_and_named_by_arguments(self, ground: Ground) -> None:
        engine = ground.engine()
        files = {"train.sh": b"echo trained with $2 in $(dirname $0)\n"}
        await engine.start(KEY, ground.launch("sh", "train.sh", "--lr", "0.1", files=files))
        report = await ended(engine)
        assert report.code == 0, report.text
        assert "trained with 0.1" in await printed(engine, "trained")

    @pytest.mark.parametrize("name", ["../evil", "a/b", "..", ""])
    async def test_a_file_name_that_leads_elsewhere_is_refused(
        self, ground: Ground, name: str
    ) -> None:
        with pytest.raises(StartRefused, match="files"):
            await ground.engine().start(KEY, ground.launch("true", files={name: b"x"}))

    async def test_the_program_can_mark_its_progress(self, ground: Ground) -> None:
        engine = ground.engine()
        code = (
            "import os\n"
            "f = open(os.environ['GPUBROKER_SPOOL'] + '/marks-0.jsonl', 'a')\n"
            'f.write(\'{"checkpoint": 40}\\nnonsense\\n{"checkpoint": 55}\\n\'); f.flush()\n'
            "os.kill(os.getpid(), 19)\n"
            "f.write('{\"complete\": true}\\n'); f.close()"
        )
        await engine.start(KEY, ground.launch(*python(code, ground.python)))

        async def saved() -> bool:
            return (await engine.poll()).reports[KEY].checkpoint == 55

        await until_async(saved, what="the checkpoint")
        report = (await engine.poll()).reports[KEY]
        assert not report.complete
        for process in report.processes:
            os.kill(process.pid, signal.SIGCONT)
        report = await ended(engine)
        assert report.complete
        assert report.checkpoint == 55

    async def test_the_environment_is_the_jobs_and_the_leases(self, ground: Ground) -> None:
        engine = ground.engine()
        env = {"COLOR": "blue", "GPUBROKER_SESSION": "ana/lab", "CUDA_VISIBLE_DEVICES": "0,1,2"}
        launch = ground.launch("env", env=env)
        await engine.start(KEY, launch)
        await ended(engine)
        lines = (await printed(engine, "COLOR")).splitlines()
        seen = dict(line.split("=", 1) for line in lines)
        assert seen["COLOR"] == "blue"
        assert (seen["GPUBROKER_JOB"], seen["GPUBROKER_ATTEMPT"]) == (KEY.job, str(KEY.attempt))
        assert "GPUBROKER_SESSION" not in seen
        assert seen["CUDA_VISIBLE_DEVICES"] == launch.placement[0].device
        assert not [name for name in seen if name.startswith("PYTEST")]
