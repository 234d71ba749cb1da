# SPDX-License-Identifier: BSD-3-Clause
"""``run_as: user``: jobs run as their account, and nothing of theirs is trusted by root."""

from __future__ import annotations

import os
import pwd
import signal
import stat
import time
from pathlib import Path

import pytest
import pytest_asyncio

from jupyter_gpubroker.engines import Phase, StartRefused, Stop

from ..until import until_async
from .conftest import LocalGround
from .contract import KEY, EngineContract, alive, ended, pids_of, printed

pytestmark = [pytest.mark.root, pytest.mark.asyncio]


class TestAsUser(EngineContract):
    """The whole contract with another account."""

    @pytest_asyncio.fixture
    async def ground(self, user_ground: LocalGround) -> LocalGround:
        return user_ground


async def test_the_job_is_the_user_and_nobody_else(
    user_ground: LocalGround, account: pwd.struct_passwd
) -> None:
    engine = user_ground.engine()
    script = "id -un; id -Gn; echo $HOME $USER $LOGNAME; pwd; umask"
    env = {"HOME": "/root", "USER": "root"}
    await engine.start(KEY, user_ground.launch("sh", "-c", script, env=env))
    assert (await ended(engine)).code == 0
    name, home = account.pw_name, account.pw_dir
    seen = (await printed(engine, "0077")).splitlines()
    assert seen == [name, name, f"{home} {name} {name}", str(user_ground.folder), "0077"]


async def test_the_folder_is_the_users_and_private(
    user_ground: LocalGround, account: pwd.struct_passwd
) -> None:
    engine = user_ground.engine()
    files = {"train.sh": b"echo done"}
    await engine.start(KEY, user_ground.launch("sh", "train.sh", files=files))
    await ended(engine)
    for name in ("", "spool", "code", "code/train.sh", "rank-0.log"):
        facts = (user_ground.folder / name).stat()
        assert facts.st_uid == account.pw_uid, name
        assert not stat.S_IMODE(facts.st_mode) & 0o077, name
    assert stat.S_IMODE(user_ground.state.stat().st_mode) & 0o077 == 0


async def test_an_account_that_does_not_exist_is_refused(user_ground: LocalGround) -> None:
    for name in ("", "nobody-of-that-name"):
        user_ground.user = name
        with pytest.raises(StartRefused, match="account"):
            await user_ground.engine().start(KEY, user_ground.launch("true"))


async def test_a_folder_that_the_user_cannot_make_is_refused(
    user_ground: LocalGround, tmp_path: Path
) -> None:
    folder = str(tmp_path / "roots-own" / "1")
    with pytest.raises(StartRefused, match="Permission denied"):
        await user_ground.engine().start(KEY, user_ground.launch("true", folder=folder))
    assert not (tmp_path / "roots-own").exists()


async def test_the_user_cannot_reach_the_shim_or_what_it_records(user_ground: LocalGround) -> None:
    engine = user_ground.engine()
    script = (
        f"kill -9 $PPID; ls {user_ground.state}; echo '{{}}' > {user_ground.state}/x; echo tried;"
        " exec sleep 600"
    )
    await engine.start(KEY, user_ground.launch("sh", "-c", script))
    await printed(engine, "tried")
    assert (await engine.poll()).reports[KEY].phase is Phase.RUNNING
    assert (await printed(engine, "denied")).lower().count("permitted") == 1
    await engine.stop(KEY, Stop.TERM)
    assert (await ended(engine)).code == -15


async def test_the_loader_settings_of_a_job_never_reach_root(
    user_ground: LocalGround, account: pwd.struct_passwd
) -> None:
    # A library that cannot be loaded leaves a line on stderr of whoever tries.
    env = {"LD_PRELOAD": "/no/such/library.so", "PYTHONSTARTUP": "/no/such/file"}
    engine = user_ground.engine()
    await engine.start(KEY, user_ground.launch("sh", "-c", "echo up; exec sleep 600", env=env))
    assert "LD_PRELOAD" in await printed(engine, "up")
    for path in (user_ground.state / "runs").glob("*/*/shim.log"):
        assert path.read_text() == ""


async def test_logs_that_are_links_to_roots_files_are_not_read(user_ground: LocalGround) -> None:
    engine = user_ground.engine()
    secret = user_ground.root / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    script = f"ln -s {secret} rank-1.log; rm rank-0.log; ln {secret} rank-0.log; ls; exit 1"
    await engine.start(KEY, user_ground.launch("sh", "-c", script))
    report = await ended(engine)
    assert "secret" not in report.text
    for rank in (0, 1):
        with pytest.raises(FileNotFoundError):
            await engine.logs(KEY, rank, 0, 100)


async def test_a_spool_that_leads_elsewhere_is_not_written(
    user_ground: LocalGround, tmp_path: Path
) -> None:
    engine = user_ground.engine()
    script = f"rmdir spool && ln -s {tmp_path} spool; echo up; exec sleep 600"
    await engine.start(KEY, user_ground.launch("sh", "-c", script))
    await printed(engine, "up")
    await engine.stop(KEY, Stop.TERM)
    assert (await ended(engine)).code == -15
    assert os.listdir(tmp_path) == []


async def test_old_folders_are_removed_with_the_rights_of_their_user(
    user_ground: LocalGround,
) -> None:
    """A user who leads the broker elsewhere loses nothing but what is their own."""
    engine = user_ground.engine()
    await engine.start(KEY, user_ground.launch("true"))
    await ended(engine)
    await engine.forget(KEY)
    elsewhere = user_ground.root / "elsewhere" / KEY.job / str(KEY.attempt)
    elsewhere.mkdir(parents=True)
    (elsewhere / "roots").touch()
    jobs = user_ground.folder.parent.parent
    jobs.rename(jobs.with_name("moved"))
    jobs.symlink_to(user_ground.root / "elsewhere")
    await engine.prune(time.time() + 60, ())
    assert os.listdir(elsewhere) == ["roots"]
    jobs.unlink()
    jobs.with_name("moved").rename(jobs)


async def test_a_link_in_place_of_a_folder_is_left_alone(user_ground: LocalGround) -> None:
    engine = user_ground.engine()
    script = f"mkdir {user_ground.home}/own; touch {user_ground.home}/own/file; ln -s ~/own link"
    await engine.start(KEY, user_ground.launch("sh", "-c", script))
    assert (await ended(engine)).code == 0
    await engine.forget(KEY)
    await engine.prune(time.time() + 60, ())
    assert not user_ground.folder.exists()
    assert user_ground.home is not None
    assert (user_ground.home / "own" / "file").exists()


async def test_a_killed_shim_of_a_user_leaves_no_process(user_ground: LocalGround) -> None:
    engine = user_ground.engine()
    script = "echo shim $PPID; setsid sleep 600 & exec sleep 600"
    await engine.start(KEY, user_ground.launch("sh", "-c", script))
    shim = int((await printed(engine, "shim")).split()[1])
    os.kill(shim, signal.SIGKILL)
    await until_async(lambda: not alive(shim))
    assert (await ended(engine)).code == -9
    assert pids_of(KEY.job) == []
