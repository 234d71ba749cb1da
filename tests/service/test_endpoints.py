# SPDX-License-Identifier: BSD-3-Clause
"""What endpoints do, seen through the client."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.client import AsyncClient, Conflict, Refusal, Unavailable, Unknown
from jupyter_gpubroker.core.model import (
    Blocked,
    Job,
    Key,
    Kind,
    Quarantined,
    Queue,
    Reason,
    Share,
    StageName,
    State,
)
from jupyter_gpubroker.service import Degraded
from jupyter_gpubroker.service.routes import ROUTES
from jupyter_gpubroker.wire import (
    ActivityIn,
    GoneIn,
    HolderIn,
    KernelIn,
    RequestIn,
    SessionIn,
    SubmitIn,
)

from .conftest import House
from .hub import OWN

HOLDER = HolderIn(host="h", boot="b", pid=7, start=9, incarnation=1)


def ana(house: House, server: str = "") -> AsyncClient:
    return house.client(house.hub.user("ana", f"ana/{server}", server=server))


def bob(house: House) -> AsyncClient:
    return house.client(house.hub.user("bob", server=""))


def hub(house: House) -> AsyncClient:
    return house.client(OWN)


# --- jobs ---------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_job_is_submitted_runs_and_is_shown(house: House) -> None:
    client = ana(house)
    body = SubmitIn(
        argv=("train.py", "-x"),
        files={"train.py": "pass"},
        python="/py",
        env={"A": "secret"},
        name="mine",
        class_name="batch",
        request=RequestIn(gpus=2, time="10m"),
    )
    job = await client.submit(body)
    assert (job.kind, job.user, job.state, job.name) == (Kind.BATCH, "ana", "starting", "mine")
    assert (job.request.words, job.request.time_limit) == ("2 GPUs", 600.0)
    launch = house.desk.stage.store.launch(job.id)
    assert launch is not None
    assert (launch.argv, launch.torchrun) == (("train.py", "-x"), True)
    house.desk.run(5)
    shown = await client.show(job.id)
    assert shown.state is State.RUNNING
    assert shown.lease is not None
    assert len(shown.lease.shares) == 2
    assert shown.lease.guarantees.sentence
    assert shown.gpu_seconds == pytest.approx(2 * 5, abs=2)
    house.desk.run(60)
    done = await client.show(job.id)
    assert (done.state, done.lease, done.code) == (State.COMPLETED, None, 0)
    explained = await client.explain(job.id)
    story = [entry.event for entry in explained.story]
    assert explained.factors == ()
    assert story[0] == "job.submitted"
    assert story[-1] == "job.exited"
    assert "secret" not in explained.model_dump_json() + done.model_dump_json()


@pytest.mark.asyncio
async def test_the_same_key_gives_the_same_job_to_the_same_user(house: House) -> None:
    body = SubmitIn(argv=("true",))
    async with house.http(house.hub.user("ana", "t", server="")) as http:
        answers = [
            await http.post(
                "api/v1/jobs", content=body.model_dump_json(), headers={"Idempotency-Key": "k"}
            )
            for _ in range(2)
        ]
    assert [answer.status_code for answer in answers] == [201, 200]
    first, second = (answer.json()["id"] for answer in answers)
    assert first == second
    assert (await bob(house).submit(body, key="k")).id != first
    assert (await ana(house).submit(body)).id != first


@pytest.mark.asyncio
async def test_jobs_are_listed_newest_first_and_by_kind_and_state(house: House) -> None:
    stage, client = house.desk.stage, ana(house)
    first = stage.submit("ana", lasts=5)
    house.desk.run(30)
    second = stage.submit("ana", lasts=1000)
    session = stage.session("ana", gpus=1)
    stage.submit("bob")
    house.desk.run(5)
    listed = [job.id for job in await client.jobs()]
    assert listed[-1] == first.id
    assert sorted(listed) == sorted([first.id, second.id, session.id])
    assert [job.id for job in await client.jobs(kind=Kind.SESSION)] == [session.id]
    assert [job.id for job in await client.jobs(state=State.COMPLETED)] == [first.id]
    assert len(await client.jobs(limit=1)) == 1
    assert [job.id for job in await client.sessions()] == [session.id]


@pytest.mark.asyncio
async def test_a_verb_that_the_state_does_not_allow_is_a_conflict(house: House) -> None:
    job = house.desk.stage.submit("ana", lasts=1)
    house.desk.run(60)
    with pytest.raises(Conflict, match="completed"):
        await ana(house).extend(job.id, "1m")
    with pytest.raises(Unknown, match="not a session"):
        await ana(house).keep(job.id)


@pytest.mark.asyncio
async def test_time_is_extended_and_refused_with_the_rest(house: House) -> None:
    client = ana(house)
    job = house.desk.stage.submit("ana", lasts=1e6)
    house.desk.run(5)
    before = (await client.show(job.id)).lease
    after = (await client.extend(job.id, "10m")).lease
    assert before is not None
    assert after is not None
    assert after.expires == before.expires + 600
    with pytest.raises(Refusal, match="at most") as caught:
        await client.extend(job.id, "300d")
    assert caught.value.field == "time"
    with pytest.raises(Refusal, match="not a duration"):
        await client.extend(job.id, "soon")


@pytest.mark.asyncio
async def test_a_degraded_broker_says_what_is_missing(house: House) -> None:
    client = ana(house)
    house.desk.missing = Degraded("the store is not open yet")
    house.desk.world.problems["store"] = "the store is not open yet"
    house.desk.world.engines_down["sim"] = "no answer"
    with pytest.raises(Unavailable, match="not open yet"):
        await client.submit(SubmitIn(argv=("true",)))
    health = await client.health()
    assert health.status == "degraded"
    assert health.problems == ("the store is not open yet", "sim: no answer")
    assert not (await client.nodes())[0].usable


@pytest.mark.asyncio
async def test_an_error_of_ours_is_500_and_tells_nothing(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.desk.missing = RuntimeError("the password is 1234")
    async with house.http(house.hub.user("ana")) as http:
        response = await http.post("api/v1/jobs", json={"argv": ["true"]})
    assert response.status_code == 500
    assert "1234" not in response.text
    assert "1234" in caplog.text


# --- logs ---------------------------------------------------------------------------------


async def whole(client: AsyncClient, job: str, limit: int, attempt: int | None = None) -> str:
    """A log read to its present end."""
    text, offset = "", 0
    while True:
        part = await client.logs(job, offset=offset, limit=limit, attempt=attempt)
        text += part.text
        if part.next_offset == offset:
            return text
        offset = part.next_offset


@pytest.mark.asyncio
@pytest.mark.parametrize("limit", [16, 17, 18, 19, 1000])
async def test_a_log_is_read_in_parts_and_no_character_is_torn(house: House, limit: int) -> None:
    client, text = ana(house), "grün €uro 🙂 " * 20
    job = house.desk.stage.submit("ana", lasts=1e6)
    house.desk.run(5)
    house.desk.written[Key(job.id, 1), 0] = text.encode()
    assert await whole(client, job.id, limit) == text


@pytest.mark.asyncio
async def test_bytes_that_are_no_text_are_shown_and_read_to_the_end(house: House) -> None:
    client = ana(house)
    job = house.desk.stage.submit("ana", lasts=5)
    house.desk.run(2)
    house.desk.written[Key(job.id, 1), 0] = b"\xff" * 40 + "€".encode()[:2]
    part = await client.logs(job.id)
    assert (part.ended, part.next_offset, part.size) == (False, 40, 42)
    house.desk.run(60)
    last = await client.logs(job.id, offset=part.next_offset)
    assert (last.ended, last.next_offset, last.text) == (True, 42, "\N{REPLACEMENT CHARACTER}")


@pytest.mark.asyncio
async def test_a_log_that_is_not_there_yet_is_empty_and_one_that_never_was_is_404(
    house: House,
) -> None:
    client = ana(house)
    house.desk.stage.submit("bob", nodes=2, gpus=4, lasts=30)
    job = house.desk.stage.submit("ana", lasts=40)
    waiting = await client.logs(job.id)
    assert (waiting.text, waiting.ended, waiting.ranks) == ("", False, ())
    with pytest.raises(Refusal, match="made 0"):
        await client.logs(job.id, attempt=1)
    house.desk.run(50)
    house.desk.written[Key(job.id, 1), 0] = b"hello"
    assert (await client.logs(job.id, 1)).text == ""
    house.desk.run(60)
    assert (await client.logs(job.id)).ended
    with pytest.raises(Unknown, match="rank 7; ranks: 0"):
        await client.logs(job.id, 7)


@pytest.mark.asyncio
async def test_a_cancelled_job_that_never_ran_has_an_ended_log(house: House) -> None:
    client = ana(house)
    house.desk.stage.submit("bob", nodes=2, gpus=4, lasts=100)
    job = house.desk.stage.submit("ana")
    await client.cancel(job.id)
    assert (await client.logs(job.id)).ended


@pytest.mark.asyncio
async def test_an_earlier_attempt_keeps_its_log(house: House) -> None:
    client = ana(house)
    job = house.desk.stage.submit("ana", lasts=1e6)
    house.desk.run(5)
    house.desk.written[Key(job.id, 1), 0] = b"first"
    house.desk.written[Key(job.id, 2), 0] = b"second"
    lease = house.desk.stage.job(job.id).lease
    assert lease is not None
    house.desk.change(job.id, attempt=2)
    first, second = [await client.logs(job.id, attempt=n) for n in (1, None)]
    assert (first.text, first.ended) == ("first", True)
    assert (second.text, second.ended) == ("second", False)


# --- sessions and servers -----------------------------------------------------------------


async def held(house: House, client: AsyncClient, **shape: Any) -> Job:
    """A running session of ana's default server."""
    body = SessionIn(request=RequestIn(**(shape or {"gpus": 0.5})), incarnation=1)
    session = await client.open_session(body)
    await client.hello(HOLDER)
    house.desk.run(5)
    return house.desk.stage.job(session.id)


@pytest.mark.asyncio
async def test_a_session_is_opened_once_and_adopted_again(house: House) -> None:
    token = house.hub.user("ana", "t", server="")
    body = {"request": {"gpus": 0.5}, "incarnation": 1}
    async with house.http(token) as http:
        answers = [await http.post("api/v1/sessions", json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert answers[0].json()["server"] == "ana/"
    assert answers[0].json()["why"]["code"] == Blocked.SERVER


@pytest.mark.asyncio
async def test_a_server_learns_its_lease_and_says_that_it_is_bound(house: House) -> None:
    client = ana(house)
    session = await client.open_session(SessionIn(request=RequestIn(gpus=0.5), incarnation=1))
    assert (await client.server_state()).session == session
    state = await client.hello(HOLDER)
    assert state.key == "ana/"
    assert state.empty_env == {"CUDA_VISIBLE_DEVICES": ""}
    assert state.session is not None
    assert state.session.state is State.STARTING
    assert state.session.lease is not None
    assert state.session.lease.env["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
    early = await client.started(session.id, 1)
    assert (early.state, early.lease and early.lease.prepared) == (State.STARTING, False)
    house.desk.run(3)
    started = await client.started(session.id, 1)
    assert started.state is State.RUNNING
    assert house.desk.stage.job(session.id).holder is not None


@pytest.mark.asyncio
async def test_the_hub_acts_for_any_user(house: House) -> None:
    body = SessionIn(user="ana", server="two", request=RequestIn(gpus=1), incarnation=1)
    session = await hub(house).open_session(body)
    assert (session.user, session.server) == ("ana", "ana/two")
    assert (await ana(house, "two").server_state("two")).session is not None
    state = await hub(house).gone(GoneIn(user="ana", server="two", incarnation=1, how="withdrawn"))
    assert state.session is None
    with pytest.raises(Refusal, match="user"):
        await hub(house).server_state("two")


@pytest.mark.asyncio
async def test_a_server_that_is_bound_as_a_whole_is_never_called_idle(house: House) -> None:
    body = SessionIn(user="ana", incarnation=1, attach=False, binding="server")
    session = await hub(house).open_session(body)
    house.desk.run(5)
    shown = await hub(house).show(session.id)
    assert shown.lease is not None
    assert shown.idle is None
    cancelled = await hub(house).cancel(session.id)
    assert cancelled.notice is not None
    assert cancelled.notice.text == "Cancelled. Its server is stopped."


@pytest.mark.asyncio
async def test_what_kernels_do_reaches_the_broker(house: House) -> None:
    client = ana(house)
    session = await held(house, client)
    house.desk.run(100)
    kernels = (KernelIn(id="k", name="python3", idle_for=42),)
    state = await client.activity(ActivityIn(incarnation=1, kernels=kernels, children=0))
    seen = house.desk.world.activity["ana/"]
    assert seen.kernels == (i.Kernel("k", False, 42.0, None, "python3", True),)
    assert state.session is not None
    idle = state.session.idle
    assert idle is not None
    assert (idle.idle, idle.after, idle.since) == (False, 600.0, house.desk.stage.now - 42)
    busy = await client.activity(ActivityIn(incarnation=1, kernels=(KernelIn(id="k", busy=True),)))
    assert busy.session is not None
    idle = busy.session.idle
    assert idle is not None
    assert (idle.since, idle.after) == (None, 1800.0)
    assert session.id


@pytest.mark.asyncio
async def test_a_session_is_parked_resumed_kept_and_released(house: House) -> None:
    client = ana(house)
    session = await held(house, client)
    assert (await client.keep(session.id)).keeps_left == 1
    assert (await client.keep(session.id)).keeps_left == 0
    with pytest.raises(Conflict, match="2 of 2"):
        await client.keep(session.id)
    parking = await client.park(session.id)
    assert (parking.state, parking.stage) == (State.STOPPING, StageName.PARK)
    assert parking.notice is not None
    assert (parking.notice.reason, parking.notice.can_keep) == (Reason.USER, False)
    house.desk.run(10)
    parked = await client.show(session.id)
    assert (parked.state, parked.parked_for, parked.lease) == (State.PARKED, Reason.USER, None)
    assert parked.kept[0].rung == "gpu_state"
    assert (await client.resume(session.id)).state in (State.QUEUED, State.STARTING)
    house.desk.run(5)
    await client.release(session.id)
    house.desk.run(5)
    assert (await client.show(session.id)).state is State.COMPLETED
    assert await client.sessions() == []


@pytest.mark.asyncio
async def test_a_notice_says_why_for_whom_and_what_is_kept(house: House) -> None:
    client = ana(house)
    session = await held(house, client, gpus=4)
    house.desk.run(700)
    house.desk.stage.submit("bob", gpus=4, lasts=1e6)
    house.desk.stage.active("ana", idle_for=700)
    needed = await bob(house).submit(
        SubmitIn(argv=("train.py",), request=RequestIn(gpus=4, time="1h"))
    )
    notice = (await client.show(session.id)).notice
    assert notice is not None
    assert (notice.reason, notice.for_job, notice.for_user) == (Reason.IDLE, needed.id, "bob")
    assert notice.can_keep
    assert notice.text == "Idle; bob needs its GPUs (4 GPUs). Everything is kept, GPU memory too."
    why = (await bob(house).show(needed.id)).why
    assert why is not None
    assert why.waits_for == (session.id,)
    assert why.waits_for_users == ("ana",)
    kept = await client.keep(session.id)
    assert (kept.state, kept.notice) == (State.RUNNING, None)


# --- the whole ----------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_the_queue_is_seen_by_all_in_order_and_names_by_their_owners(house: House) -> None:
    house.desk.stage.submit("bob", nodes=2, gpus=4, lasts=1e6)
    mine = house.desk.stage.submit("ana", name="my-thesis")
    house.desk.run(5)
    theirs = house.desk.stage.submit("bob", name="his-thesis")
    rows = await ana(house).queue()
    assert [(row.id, row.user, row.mine) for row in rows] == [
        (mine.id, "ana", True),
        (theirs.id, "bob", False),
    ]
    assert [row.name for row in rows] == ["my-thesis", ""]
    assert [row.why.position for row in rows if row.why] == [1, 2]
    assert all(row.why and row.why.text for row in rows)
    admin = house.client(house.hub.user("eve", admin=True))
    assert [row.name for row in await admin.queue()] == ["my-thesis", "his-thesis"]


@pytest.mark.asyncio
async def test_why_names_machines_and_rules_of_the_policy(house: House) -> None:
    client, world = ana(house), house.desk.world
    world.drained["node2"] = "new cooling"
    wide = SubmitIn(argv=("train.py",), request=RequestIn(nodes=2, gpus=4, time="1h"))
    why = (await client.submit(wide)).why
    assert why is not None
    assert (why.code, why.nodes, why.rules) == (Blocked.IMPOSSIBLE, ("node2",), ())
    queues = {"default": Queue("default", running_gpus=8)}
    world.policy = replace(world.policy, queues=queues)
    world.drained.clear()
    why = (await client.submit(wide)).why
    assert why is not None
    assert (why.code, why.rules) == (Blocked.LIMIT, ("queues.default.running_gpus",))


@pytest.mark.asyncio
async def test_the_map_shows_who_is_where_and_what_is_free(house: House) -> None:
    client = ana(house)
    session = await held(house, client)
    house.desk.stage.submit("bob", gpus=2, lasts=1e6)
    house.desk.run(5)
    lost = Share("node2", "GPU-2-3", 1000)
    house.desk.world.quarantined.append(Quarantined((lost,), "b-old", 1, {"node2": "b1"}, 0.0))
    house.desk.world.drained["node2"] = "new cooling"
    one, two = await client.nodes()
    assert (one.usable, two.usable, two.note) == (True, False, "new cooling")
    lease = session.lease
    assert lease is not None
    devices = {device.uuid: device for node in (one, two) for device in node.devices}
    mine = devices[lease.placement[0].device]
    assert (mine.mine, mine.users, mine.kinds, mine.free_milli) == (
        True,
        ("ana",),
        ("session",),
        500,
    )
    assert sum(device.users == ("bob",) and not device.mine for device in devices.values()) == 2
    assert devices["GPU-2-3"].kinds == ("quarantined",)
    assert all(device.free_milli == 0 for device in two.devices)
    shapes = await client.shapes()
    assert (shapes.gpus_per_node, shapes.nodes, shapes.flavors) == ((1, 2, 3, 4), 2, ("sim",))
    assert shapes.free_gpus == sum(device.free_milli for device in devices.values()) / 1000
    assert {item.name for item in shapes.classes} == {"interactive", "batch"}


@pytest.mark.asyncio
async def test_a_policy_is_checked_applied_and_shown(house: House) -> None:
    admin = house.client(house.hub.user("eve", admin=True))
    document = policy.DEFAULT_DOCUMENT.replace("grace: 60s", "grace: 7s")
    checked = await ana(house).check_policy(document)
    assert (checked.revision, house.desk.world.policy_row) == (1, None)
    applied = await admin.apply_policy(document)
    assert (applied.revision, applied.author) == (1, "admin:eve")
    assert (await ana(house).policy()).document == document
    assert house.desk.world.policy.classes["batch"].terms.grace == 7


@pytest.mark.asyncio
async def test_openapi_describes_every_route_without_a_dangling_reference(house: House) -> None:
    async with house.http() as http:
        document = (await http.get("api/v1/openapi.json")).json()
        root = (await http.get("")).json()
    assert root["health"].endswith("/health")
    described = {
        (method.upper(), path) for path, item in document["paths"].items() for method in item
    }
    assert described == {(route.endpoint.method, route.endpoint.path) for route in ROUTES}
    text = json.dumps(document)
    references = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert references <= set(document["components"]["schemas"])
    body = document["components"]["schemas"]["SubmitIn"]
    assert "class" in body["properties"]
    names = [item["operationId"] for path in document["paths"].values() for item in path.values()]
    assert len(names) == len(dict.fromkeys(names))
