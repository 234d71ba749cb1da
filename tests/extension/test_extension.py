# SPDX-License-Identifier: BSD-3-Clause
"""The extension in a real Jupyter server, with real kernels."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_gpubroker.extension import GPUBrokerExtension
from jupyter_gpubroker.extension.changes import SCHEMA_ID

from ..until import until_async
from .conftest import Fetch, linked
from .shell import Shell
from .standin import UUID, StandIn, job, kept, lease

StartKernel = Callable[..., Awaitable[str]]
GetState = Callable[[], Awaitable[Any]]


def running(**changes: Any) -> Any:
    """A session that has its GPU."""
    return job("s-1", "session", state="running", attempt=1, lease=lease(1), **changes)


def one_pid(server: ServerApp, shell: Shell) -> int | None:
    """The process of that shell's kernel."""
    pid: int | None = server.kernel_manager.get_kernel(shell.kernel).provisioner.pid
    return pid


def one(state: Any) -> Any:
    """The only kernel of a state."""
    (kernel,) = state["kernels"]
    return kernel


async def test_it_says_hello_with_its_holder_and_the_servers_token(
    extension: GPUBrokerExtension, broker: StandIn
) -> None:
    await linked(broker)
    (hello,) = broker.posts("/servers/hello")
    assert hello.token == "token secret"
    assert hello.body["pid"] == os.getpid()
    assert hello.body["start"] > 0
    assert hello.body["incarnation"] == 7
    assert hello.body["server"] == ""


async def test_a_kernel_without_a_lease_has_an_explicit_empty_set(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel, state: GetState
) -> None:
    await linked(broker)
    shell = Shell(server, kernel := await start_kernel())
    assert await shell.env("CUDA_VISIBLE_DEVICES") == ""
    assert await shell.env("GPUBROKER_KERNEL") == kernel
    assert await shell.env("GPUBROKER_SESSION") == "ana/"
    assert "Nothing waits" in await shell.run("%gpu_queue"), "magics without %load_ext"
    assert one(await state())["bound"] is False
    shell.close()


async def test_a_kernel_started_with_a_lease_is_bound_by_uuid_also_after_a_restart(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel, state: GetState
) -> None:
    await linked(broker)
    broker.let(running())
    await until_async(lambda: broker.posts("started"), what="started")
    kernel = await start_kernel()
    shell = Shell(server, kernel)
    assert await shell.env("CUDA_VISIBLE_DEVICES") == UUID
    await shell.restart()
    assert await shell.env("CUDA_VISIBLE_DEVICES") == UUID
    assert one(await state())["bound"] is True
    shell.close()


async def test_a_lease_reaches_a_kernel_while_its_cell_runs(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel, state: GetState
) -> None:
    await linked(broker)
    shell = Shell(server, await start_kernel())
    assert await shell.env("CUDA_VISIBLE_DEVICES") == ""
    cell = shell.client.execute(
        "import os, threading\n"
        "while not os.environ['CUDA_VISIBLE_DEVICES']: threading.Event().wait(0.05)\n"
        "print('saw', os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    await until_async(
        lambda: any(k["busy"] for a in broker.posts("/activity") for k in a.body["kernels"]),
        what="the report that a cell runs",
    )
    broker.let(job("s-1", "session", state="starting", attempt=1, lease=lease(1)))
    assert f"saw {UUID}" in await shell.end(cell)
    await until_async(lambda: broker.posts("started"), what="started")
    assert broker.posts("started")[0].body == {"attempt": 1}
    found = one(await state())
    assert found["bound"] is True
    assert found["needs_restart"] is False
    shell.close()


async def test_a_kernel_that_touched_cuda_is_offered_a_restart(
    server: ServerApp,
    broker: StandIn,
    start_kernel: StartKernel,
    state: GetState,
    monkeypatch: pytest.MonkeyPatch,
    short_tmp: Any,
) -> None:
    await linked(broker)
    shell = Shell(server, await start_kernel())
    # What a process on a simulated GPU has: an open file in the folder of the world.
    await shell.run(
        f"import os; os.environ['GPUBROKER_SIMULATED'] = {str(short_tmp)!r}; "
        f"held = open({str(short_tmp / 'entry')!r}, 'w')"
    )
    broker.let(job("s-1", "session", state="starting", attempt=1, lease=lease(1)))
    await until_async(lambda: broker.posts("started"), what="started")
    assert await shell.env("CUDA_VISIBLE_DEVICES") == ""
    found = one(await state())
    assert found["needs_restart"] is True
    await shell.restart()
    assert await shell.env("CUDA_VISIBLE_DEVICES") == UUID
    assert one(await state())["needs_restart"] is False
    shell.close()


async def test_busy_and_idle_are_reported_when_they_change_and_control_messages_are_neither(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel
) -> None:
    await linked(broker)
    broker.let(running())
    shell = Shell(server, kernel := await start_kernel())
    await shell.run("pass")

    def reported() -> Any:
        return {k["id"]: k for k in broker.posts("/activity")[-1].body["kernels"]}.get(kernel)

    await until_async(lambda: (r := reported()) and not r["busy"] and r["process"], what="idle")
    activity = server.kernel_manager.get_kernel(kernel).last_activity
    cell = shell.client.execute("import threading; go = threading.Event(); go.wait(60)")
    await until_async(lambda: reported()["busy"], what="busy")
    # Our own message comes and goes while the cell runs.
    broker.change(lease=lease(2), attempt=2)
    await until_async(
        lambda: broker.posts("started") and broker.posts("started")[-1].body == {"attempt": 2},
        what="the second lease",
    )
    assert reported()["busy"]
    await until_async(
        lambda: server.kernel_manager.get_kernel(kernel).execution_state == "busy", what="state"
    )
    assert server.kernel_manager.get_kernel(kernel).last_activity >= activity
    await server.kernel_manager.interrupt_kernel(kernel)
    await shell.end(cell)
    await until_async(lambda: not reported()["busy"], what="idle again")
    shell.close()


async def test_a_parked_kernel_holds_its_cells_back_until_it_is_told_of_the_gpu(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel
) -> None:
    await linked(broker)
    broker.let(running())
    shell = Shell(server, kernel := await start_kernel())
    pid = await shell.run("import os; x = 41; print(os.getpid())")
    broker.change(state="stopping", stage="park")
    broker.change(state="parked", stage="", lease=None, kept=kept(kernel), parked_for="preempted")
    await until_async(
        lambda: server.kernel_manager.get_kernel(kernel).kernel_spec.metadata.get(
            "cull_idle_timeout"
        ),
        what="protection from the culler",
    )
    await shell.held_back()
    cell = shell.client.execute("print(x + 1, os.getpid())")
    await until_async(lambda: broker.posts("resume"), what="the cell asking for the GPU")
    assert broker.posts("resume")[0].body == {"person": False}
    broker.change(state="starting", lease=lease(2), attempt=2, why=None)
    assert f"42 {pid}".strip() in await shell.end(cell)
    await until_async(
        lambda: broker.posts("started")[-1].body == {"attempt": 2}, what="the acknowledgement"
    )
    metadata = server.kernel_manager.get_kernel(kernel).kernel_spec.metadata
    await until_async(lambda: "cull_idle_timeout" not in metadata, what="no protection any more")
    shell.close()


async def test_a_cell_that_was_caught_by_the_parking_gets_its_gpu_back_by_itself(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel
) -> None:
    await linked(broker)
    broker.let(running())
    shell = Shell(server, kernel := await start_kernel())
    await shell.run("import threading; go = threading.Event()")
    cell = shell.client.execute("print('on', flush=True); go.wait(600)")
    await until_async(lambda: broker.posts("/activity")[-1].body["kernels"], what="a report")
    await until_async(
        lambda: broker.posts("/activity")[-1].body["kernels"][0]["busy"], what="the busy cell"
    )
    broker.change(state="stopping", stage="park")
    await shell.held_back()
    assert broker.posts("resume") == []
    broker.change(state="parked", stage="", lease=None, kept=kept(kernel), parked_for="preempted")
    await until_async(lambda: broker.posts("resume"), what="the resume")
    assert broker.posts("resume")[0].body == {"person": False}
    await server.kernel_manager.interrupt_kernel(kernel)
    await shell.end(cell)
    assert len(broker.posts("resume")) == 1
    shell.close()


async def test_a_release_restarts_only_kernels_that_hold_on_to_the_gpu(
    server: ServerApp, broker: StandIn, start_kernel: StartKernel, short_tmp: Any
) -> None:
    await linked(broker)
    broker.let(running())
    free, holding = Shell(server, await start_kernel()), Shell(server, await start_kernel())
    await free.run("x = 1")
    await holding.run(
        f"import os; os.environ['GPUBROKER_SIMULATED'] = {str(short_tmp)!r}; "
        f"held = open({str(short_tmp / 'entry')!r}, 'w')"
    )
    before = one_pid(server, holding)
    broker.change(state="stopping", stage="restart")
    await until_async(lambda: one_pid(server, holding) not in (None, before), what="the restart")
    await holding.client.wait_for_ready(timeout=120)
    assert await holding.env("CUDA_VISIBLE_DEVICES") == ""
    assert (await free.run("print(x)")).strip() == "1", "its variables are still there"
    assert await free.env("CUDA_VISIBLE_DEVICES") == ""
    free.close()
    holding.close()


async def test_browsers_are_told_that_something_changed_and_no_more(
    extension: GPUBrokerExtension, server: ServerApp, broker: StandIn
) -> None:
    heard: list[dict[str, Any]] = []

    async def listen(logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        heard.append(data)

    server.event_logger.add_listener(schema_id=SCHEMA_ID, listener=listen)
    await linked(broker)
    for number in range(50):
        broker.say("entry", f"b-{number}", "queued")
    await until_async(lambda: any(e["seq"] >= broker.seq for e in heard), what="the last event")
    assert len(heard) < 25, "coalesced"
    assert "jobs" in {part for event in heard for part in event["changed"]}
    assert all(set(event) <= {"seq", "changed", *_META} for event in heard)


_META = (
    "__timestamp__",
    "__schema__",
    "__schema_version__",
    "__metadata_version__",
)


async def test_the_state_has_everything_and_binds_nothing_in_a_browser(
    extension: GPUBrokerExtension, broker: StandIn, state: GetState
) -> None:
    await linked(broker)
    broker.let(running())
    broker.jobs["b-1"] = job("b-1", name="train")

    async def whole() -> Any:
        found = await state()
        return found if found["session"] and found["jobs"] else None

    found = await until_async(whole, what="the session")
    assert found["broker"] == {"ok": True, "problem": None}
    assert found["me"]["user"] == "ana"
    assert found["session"]["id"] == "s-1"
    assert "env" not in found["session"]["lease"]
    assert [j["name"] for j in found["jobs"]] == ["train"]
    assert found["shapes"]["gpus_per_node"] == [1, 2]
    assert "secret" not in json.dumps(found)


async def test_a_relayed_verb_reaches_the_broker_for_this_server_only(
    extension: GPUBrokerExtension, broker: StandIn, jp_fetch: Fetch
) -> None:
    await linked(broker)
    body = {"request": {"gpus": "0.5", "time": 7200}, "server": "another", "incarnation": 99}
    answer = await jp_fetch("gpubroker", "api", "sessions", method="POST", body=json.dumps(body))
    assert json.loads(answer.body)["id"] == "s-1"
    (asked,) = broker.posts("/sessions")
    assert (asked.body["server"], asked.body["incarnation"]) == ("", 7)
    assert asked.token == "token secret"


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        ("servers/hello", {}, 404, "not relayed"),
        ("servers/gone", {"user": "bo", "how": "gone"}, 404, "not relayed"),
        ("policy", {"document": ""}, 404, "not relayed"),
        ("jobs/../policy", {}, 404, ""),
        ("sessions", {"request": {"gpus": "0.5", "colour": "red"}}, 400, "request.colour"),
        ("jobs/b-9/cancel", {}, 409, "is completed"),
    ],
)
async def test_a_verb_that_is_refused_says_why(
    broker: StandIn, jp_fetch: Fetch, path: str, body: Any, status: int, word: str,
) -> None:  # fmt: skip
    from jupyter_gpubroker.wire import ErrorOut

    await linked(broker)
    broker.refuse["POST /jobs/b-9/cancel"] = (
        409, ErrorOut(error="conflict", message="b-9 is completed"),
    )  # fmt: skip
    answer = await jp_fetch(
        "gpubroker", "api", path, method="POST", body=json.dumps(body), raise_error=False
    )
    assert answer.code == status
    assert word in answer.body.decode()


async def test_without_a_broker_the_state_says_what_is_missing(
    server: ServerApp, broker: StandIn, state: GetState, extension: GPUBrokerExtension
) -> None:
    from jupyter_gpubroker.wire import ErrorOut

    refused = ErrorOut(error="unauthenticated", message="the Hub does not know this token")
    for path in ("GET /events", "POST /servers/activity", "POST /servers/hello"):
        broker.refuse[path] = (401, refused)

    async def problem() -> Any:
        return (await state())["broker"]["problem"]

    await until_async(
        lambda: extension.link.problem == "the Hub does not know this token", what="the problem"
    )
    assert await problem() == "the Hub does not know this token"
    broker.refuse.clear()

    async def well() -> Any:
        return (await state())["broker"]["ok"]

    await until_async(well, what="the broker again")


async def test_nobody_is_served_without_the_servers_token(
    extension: GPUBrokerExtension, jp_fetch: Fetch
) -> None:
    for path in ("state", "api/jobs"):
        answer = await jp_fetch(
            "gpubroker", *path.split("/"), headers={"Authorization": "token wrong"},
            raise_error=False, follow_redirects=False,
        )  # fmt: skip
        assert answer.code in (302, 403)


async def test_an_open_terminal_is_reported(
    extension: GPUBrokerExtension, broker: StandIn, jp_fetch: Fetch
) -> None:
    await linked(broker)
    await until_async(lambda: broker.posts("/activity"), what="a report")
    assert broker.posts("/activity")[-1].body["terminals_idle_for"] is None
    answer = await jp_fetch("api", "terminals", method="POST", allow_nonstandard_methods=True)
    extension.link.kernels_changed()

    def reported() -> bool:
        return broker.posts("/activity")[-1].body["terminals_idle_for"] is not None

    await until_async(reported, what="a report with the terminal")
    name = json.loads(answer.body)["name"]
    await jp_fetch("api", "terminals", name, method="DELETE")
