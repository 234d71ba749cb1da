# SPDX-License-Identifier: BSD-3-Clause
"""How a kernel is launched, whatever its kernelspec says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_gpubroker.inject import FOLDER
from jupyter_gpubroker.provisioner import is_ipykernel, with_inject

from ..inject.conftest import bare_python  # noqa: F401 - a fixture
from ..until import until_async
from .conftest import linked
from .shell import Shell
from .standin import UUID, StandIn, job, kept, lease

StartKernel = Callable[..., Awaitable[str]]
SPECS = {
    "shell": {"argv": ["bash", "-c", "exec {python} -m ipykernel_launcher -f {connection_file}"]},
    "wrapped": {"argv": ["bash", "-c", "{python} -m ipykernel_launcher -f {connection_file}; :"]},
    "own": {
        "argv": ["{python}", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "metadata": {"kernel_provisioner": {"provisioner_name": "local-provisioner"}},
    },
    "stubborn": {
        "argv": ["{python}", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "env": {"CUDA_VISIBLE_DEVICES": "all-of-them"},
    },
}


def install(folder: Path, name: str, python: str) -> None:
    """Write a kernelspec into a Jupyter data folder."""
    spec = json.loads(json.dumps(SPECS[name]).replace("{python}", python))
    path = folder / "kernels" / name
    path.mkdir(parents=True)
    (path / "kernel.json").write_text(
        json.dumps({"display_name": name, "language": "python", **spec})
    )


@pytest.fixture
def jp_data_dir(tmp_path: Path) -> Path:
    """The user's Jupyter folder, with our odd kernelspecs."""
    folder = tmp_path / "data"
    for name in SPECS:
        install(folder, name, sys.executable)
    return folder


def test_an_argument_that_only_contains_ipykernel_is_not_ipykernel() -> None:
    assert is_ipykernel(["python", "-m", "ipykernel_launcher", "-f", "x"])
    assert is_ipykernel(["python", "-m", "ipykernel"])
    assert not is_ipykernel(["bash", "-lc", "python -m ipykernel_launcher -f x"])
    assert not is_ipykernel(["julia", "kernel.jl"])


def test_our_folder_is_the_last_of_pythonpath_and_there_once() -> None:
    assert with_inject("") == FOLDER
    assert with_inject(f"/a{os.pathsep}{FOLDER}{os.pathsep}/b") == os.pathsep.join(
        ["/a", "/b", FOLDER]
    )


def test_the_entry_point_is_light() -> None:
    code = (
        "import sys, jupyter_gpubroker.provisioner as p; print(p.NAME,"
        " sorted({'pydantic', 'httpx', 'sqlalchemy', 'pynvml'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "gpubroker-provisioner []\n"


async def test_a_kernel_behind_a_shell_gets_the_magics_before_its_first_cell(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel
) -> None:
    await linked(broker)
    shell = Shell(server, await start_kernel("shell"))
    await until_async(
        lambda: server.kernel_manager.get_kernel(shell.kernel).execution_state, what="the kernel"
    )
    assert "Nothing waits" in await shell.run("%gpu_queue")
    assert (await shell.run("print(len(In))")).strip() == "3", "a silent load, not a cell"
    shell.close()


async def test_a_spec_cannot_give_a_kernel_more_than_its_lease(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel
) -> None:
    await linked(broker)
    shell = Shell(server, await start_kernel("stubborn"))
    assert await shell.env("CUDA_VISIBLE_DEVICES") == ""
    shell.close()


async def test_a_spec_with_a_provisioner_of_its_own_is_left_alone_and_shown_so(
    server: ServerApp,
    broker: StandIn,
    start_kernel: StartKernel,
    state: Callable[[], Awaitable[dict[str, list[dict[str, object]]]]],
) -> None:
    await linked(broker)
    broker.let(job("s-1", "session", state="running", attempt=1, lease=lease(1)))
    shell = Shell(server, await start_kernel("own"))
    assert "not found" in await shell.run("%gpu_queue")
    assert await shell.env("GPUBROKER_KERNEL") == "None"
    (kernel,) = (await state())["kernels"]
    assert (kernel["managed"], kernel["bound"], kernel["needs_restart"]) == (False, False, False)
    reported = broker.posts("/activity")[-1].body["kernels"]
    assert [k["managed"] for k in reported if k["id"] == shell.kernel] in ([], [False])
    shell.close()


async def test_a_kernel_of_a_bare_environment_has_magics_gate_and_lease(
    server: ServerApp,
    broker: StandIn,
    start_kernel: StartKernel,
    jp_data_dir: Path,
    bare_python: str,  # noqa: F811 - the fixture
) -> None:
    SPECS["bare"] = {"argv": SPECS["own"]["argv"]}
    install(jp_data_dir, "bare", bare_python)
    await linked(broker)
    broker.let(job("s-1", "session", state="running", attempt=1, lease=lease(1)))
    await until_async(lambda: broker.posts("started"), what="started")
    shell = Shell(server, kernel := await start_kernel("bare"))
    assert (await shell.run("import sys; print(sys.executable)")).strip() == bare_python
    assert await shell.env("CUDA_VISIBLE_DEVICES") == UUID
    broker.change(state="parked", lease=None, kept=kept(kernel), parked_for="user")
    await shell.held_back()
    cell = shell.client.execute("print('ran')")
    await until_async(lambda: broker.posts("resume"), what="the cell asking for the GPU")
    broker.change(state="running", lease=lease(2), attempt=2, why=None)
    assert "ran" in await shell.end(cell)
    shell.close()


async def test_children_of_kernels_count_and_kernels_do_not(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel
) -> None:
    await linked(broker)
    shell = Shell(server, await start_kernel("wrapped"))
    await shell.run("pass")

    def children() -> int | None:
        last = broker.posts("/activity")[-1].body
        return last["children"] if last["kernels"] else None

    await until_async(lambda: children() == 0, what="a report without children")
    await shell.run(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)"
    )
    await until_async(lambda: children() == 1, what="a report with the child")
    await shell.run("child.communicate(b'')")
    await until_async(lambda: children() == 0, what="a report without it")
    shell.close()


class TestCulling:
    """The server's own culler, with a short patience."""

    @pytest.fixture
    def jp_server_config(self) -> Config:
        """Cull kernels that did nothing for three seconds."""
        return Config(
            {
                "ServerApp": {"jpserver_extensions": {"jupyter_gpubroker": True}},
                "MappingKernelManager": {
                    "cull_idle_timeout": 3,
                    "cull_interval": 1,
                    "cull_connected": True,
                },
            }
        )

    async def test_a_parked_kernel_outlives_one_that_only_idles(
        self, server: ServerApp, broker: StandIn, start_kernel: StartKernel
    ) -> None:
        await linked(broker)
        parked = await start_kernel("stubborn")
        broker.let(job("s-1", "session", state="parked", kept=kept(parked), parked_for="preempted"))
        idle = await start_kernel("stubborn")
        await until_async(lambda: idle not in server.kernel_manager, what="the idle one culled")
        assert parked in server.kernel_manager
        broker.let(None)
        await until_async(lambda: parked not in server.kernel_manager, what="the other one, too")
