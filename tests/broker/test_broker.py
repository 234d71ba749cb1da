# SPDX-License-Identifier: BSD-3-Clause
"""The broker in virtual time: the ways of work, then the same with everything going wrong."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import (
    Conflict,
    Reason,
    Refusal,
    Request,
    Rung,
    State,
)
from jupyter_gpubroker.engines import Poll
from jupyter_gpubroker.sim.engine import Work
from jupyter_gpubroker.store import LaunchRow

from .theatre import Theatre


def test_a_batch_job_is_placed_started_and_completed() -> None:
    stage = Theatre()
    job = stage.submit("ana", gpus=2)
    assert stage.job(job.id).state is State.STARTING
    stage.run(5)
    assert stage.job(job.id).state is State.RUNNING
    stage.run(40)
    done = stage.job(job.id)
    assert done.state is State.COMPLETED
    assert done.gpu_seconds > 0
    assert stage.store.launch(job.id) is None


def test_the_same_idempotency_key_gives_the_same_job() -> None:
    stage = Theatre()
    first = stage.submit("ana", idempotency="x")
    assert stage.submit("ana", idempotency="x").id == first.id
    assert stage.submit("bo", idempotency="x").id != first.id


@pytest.mark.parametrize("other", [{"gpus": 2}, {"name": "other"}])
def test_the_key_of_another_job_is_no_way_to_lose_one(other: dict[str, Any]) -> None:
    stage = Theatre()
    first = stage.submit("ana", idempotency="x")
    with pytest.raises(Conflict, match=first.id):
        stage.submit("ana", idempotency="x", **other)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("sleep", "3600"), "sleep"),
        (("/usr/bin/python3", "-u", "jobs/train.py", "--lr", "0.1"), "train.py"),
        (("/usr/bin/python3", "-m", "pkg.train", "7"), "pkg.train"),
        (("/usr/bin/python3", "-c", "print(1)"), "python3"),
        (("cell.py", "7"), "cell.py"),
    ],
)
def test_a_job_is_called_after_what_it_runs(argv: tuple[str, ...], name: str) -> None:
    launch = LaunchRow(argv, {}, "/", "/usr/bin/python3", torchrun=False)
    job = Theatre().ask(i.Submit("user:ana", "ana", Request(gpus=1), launch))
    assert job is not None
    assert job.name == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a\nb\x1b[2J\x9bc", "a b [2J c"), ("\u202ea\u2028", "a"), ("x" * 90, "x" * 80)],
)
def test_a_name_stays_within_its_line_in_everybodys_terminal(name: str, shown: str) -> None:
    assert Theatre().submit("ana", name=name).name == shown


def test_two_users_race_for_the_last_gpu_and_one_waits() -> None:
    stage = Theatre(count=1)
    stage.submit("ana", gpus=3, lasts=100)
    first, second = stage.submit("bo"), stage.submit("cy")
    assert stage.job(first.id).state is State.STARTING
    assert stage.job(second.id).state is State.QUEUED
    why = stage.broker.world.plan.why[second.id]
    assert why.position == 1
    assert why.text


def test_an_attach_session_is_placed_only_after_its_servers_hello() -> None:
    stage = Theatre()
    job = stage.ask(i.OpenSession("hub", "ana", "ana/", Request(gpu_milli=500), 1))
    assert job is not None
    stage.run(3)
    assert stage.job(job.id).state is State.QUEUED
    assert "server" in stage.broker.world.plan.why[job.id].text
    stage.hello("ana")
    stage.run(3)
    assert stage.job(job.id).state is State.RUNNING


def idle_session(stage: Theatre, user: str, *, gpus: int = 1) -> str:
    job = stage.session(user, gpus=gpus)
    stage.run(3)
    assert stage.job(job.id).state is State.RUNNING
    return job.id


def test_batch_takes_idle_sessions_and_they_resume_afterwards() -> None:
    stage = Theatre(count=1)
    victim = idle_session(stage, "ana", gpus=4)
    stage.run(700)
    stage.active("ana", idle_for=700)
    job = stage.submit("bo", gpus=4)
    noticed = stage.job(victim)
    assert noticed.state is State.DRAINING
    assert noticed.notice is not None
    assert (noticed.notice.reason, noticed.notice.for_job) == (Reason.IDLE, job.id)
    assert stage.broker.world.plan.why[job.id].waits_for == (victim,)
    for _ in range(5):
        stage.run(30)
        stage.active("ana", idle_for=stage.now)
    assert stage.job(victim).state is State.PARKED
    assert stage.job(victim).rung is Rung.GPU_STATE
    stage.run(60)
    assert stage.job(job.id).state is State.COMPLETED
    stage.ask(i.Ask("user:ana", victim, e.Resume(person=False)))
    stage.run(5)
    assert stage.job(victim).state is State.RUNNING


def test_use_within_the_grace_rescues_the_session() -> None:
    stage = Theatre(count=1)
    victim = idle_session(stage, "ana", gpus=4)
    stage.run(700)
    stage.active("ana", idle_for=700)
    job = stage.submit("bo", gpus=4)
    assert stage.job(victim).state is State.DRAINING
    stage.active("ana", busy=True)
    assert stage.job(victim).state is State.RUNNING
    assert stage.job(job.id).state is State.QUEUED


def test_a_notice_is_withdrawn_when_nobody_needs_it_any_more() -> None:
    stage = Theatre(count=1)
    victim = idle_session(stage, "ana", gpus=4)
    stage.run(700)
    stage.active("ana", idle_for=700)
    job = stage.submit("bo", gpus=4)
    assert stage.job(victim).state is State.DRAINING
    stage.ask(i.Ask("user:bo", job.id, e.Cancel()))
    assert stage.job(victim).state is State.RUNNING


def test_silence_counts_as_in_use() -> None:
    stage = Theatre(count=1)
    victim = idle_session(stage, "ana", gpus=4)
    stage.active("ana", idle_for=0)
    stage.run(5000)
    stage.submit("bo", gpus=4)
    stage.run(5)
    assert stage.job(victim).state is State.RUNNING


def test_nothing_is_taken_on_the_word_of_a_report_that_is_lost() -> None:
    """A broker that was started again does not know whether the notebook is still idle."""
    stage = Theatre(count=1)
    victim = idle_session(stage, "ana", gpus=4)
    stage.run(700)
    stage.active("ana", idle_for=700)
    stage.submit("bo", gpus=4)
    assert stage.job(victim).state is State.DRAINING
    stage.restart()
    stage.run(200)
    assert stage.job(victim).state is State.RUNNING


def test_a_job_that_saved_at_its_first_step_is_run_again_for_nothing() -> None:
    stage = Theatre()
    job = stage.submit("ana", lasts=10_000)
    stage.run(5)
    stage.engine.leave(stage.job(job.id).key, 75, step=0)
    stage.run(2)
    again = stage.job(job.id)
    assert (again.attempt, again.restarts, again.checkpoint) == (2, 0, 0)


def test_only_the_engine_of_its_node_can_miss_an_image() -> None:
    stage = Theatre()
    session = idle_session(stage, "ana")
    stage.ask(i.Ask("user:ana", session, e.Park()))
    stage.run(5)
    assert stage.job(session).rung is Rung.GPU_STATE
    stage.run(60)
    look = Poll(stage.now, {}, 2.0)
    stage.tell(i.PollSeen("another", look))
    stage.run(0)
    assert stage.job(session).rung is Rung.GPU_STATE
    stage.tell(i.PollSeen("sim", look))
    stage.run(0)
    assert stage.job(session).rung is Rung.NOTHING


def test_a_policy_that_was_replaced_by_the_default_makes_jobs_wait_and_nothing_fail() -> None:
    stage = Theatre(count=1)
    document = policy.DEFAULT_DOCUMENT.replace("  batch:  ", "  long:  ") + "  deep: {}\n"
    stage.ask(i.ApplyPolicy("admin:eve", document, policy.parse(document)))
    stage.submit("ana", gpus=3, lasts=500)
    waits = stage.submit("bo", gpus=4, queue="deep")
    stage.store.data.policies.clear()
    stage.restart()  # with the default policy, as if the stored one could not be read
    stage.run(5)
    assert stage.job(waits.id).state is State.QUEUED
    assert "class long is not in the policy" in stage.broker.world.plan.why[waits.id].text


def test_the_hubs_stop_ends_the_session_and_late_news_of_it_nothing_else() -> None:
    stage = Theatre()
    first = idle_session(stage, "ana")
    stage.ask(i.ServerGone("hub", "ana/", 1, i.HowGone.STOPPED))
    stage.run(5)
    assert stage.job(first).state is State.COMPLETED
    second = stage.session("ana", gpus=1, incarnation=2)
    stage.run(3)
    stage.ask(i.ServerGone("hub", "ana/", 1, i.HowGone.STOPPED))
    assert stage.job(second.id).state is State.RUNNING


def test_a_server_that_died_and_came_back_keeps_its_lease() -> None:
    stage = Theatre()
    job = idle_session(stage, "ana")
    stage.servers["ana"].end()
    stage.ask(i.ServerGone("hub", "ana/", 1, i.HowGone.GONE))
    assert stage.job(job).state is State.DRAINING
    stage.ask(i.OpenSession("hub", "ana", "ana/", Request(gpus=1), 2))
    stage.hello("ana", 2)
    stage.ask(i.Ask("user:ana", job, e.Started(1)))
    assert stage.job(job).state is State.RUNNING
    stage.run(400)
    assert stage.job(job).state is State.RUNNING


def test_another_wish_replaces_the_waiting_session() -> None:
    stage = Theatre()
    first = stage.ask(i.OpenSession("hub", "ana", "ana/", Request(gpus=1), 1))
    second = stage.ask(i.OpenSession("hub", "ana", "ana/", Request(gpus=2), 2))
    assert first is not None
    assert second is not None
    assert stage.job(first.id).state is State.CANCELLED
    assert stage.job(second.id).state is State.QUEUED


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (Request(gpus=9), "gpus"),
        (Request(nodes=3, gpus=4), "nodes"),
        (Request(gpus=1, flavors=("h100",)), "flavors"),
        (Request(gpus=1, time_limit=10**9), "time"),
    ],
)
def test_what_can_never_run_is_refused(request_: Request, field: str) -> None:
    stage = Theatre()
    question = i.OpenSession("hub", "ana", "ana/", request_, 1)
    with pytest.raises(Refusal) as caught:
        stage.ask(question)
    assert field in caught.value.field
    assert not stage.broker.world.jobs


def test_extending_harms_nobody() -> None:
    stage = Theatre(count=1)
    job = stage.submit("ana", gpus=4, lasts=500)
    stage.run(5)
    lease = stage.job(job.id).lease
    assert lease is not None
    stage.ask(i.Ask("user:ana", job.id, e.Extend(100)))
    extended = stage.job(job.id).lease
    assert extended is not None
    assert extended.expires == lease.expires + 100
    stage.submit("bo", gpus=4)
    with pytest.raises(Conflict, match="1 waiting"):
        stage.ask(i.Ask("user:ana", job.id, e.Extend(100)))
    alone = Theatre()
    other = alone.submit("ana")
    alone.run(5)
    with pytest.raises(Refusal, match="allows"):
        alone.ask(i.Ask("user:ana", other.id, e.Extend(8 * 86400)))


def test_an_extension_outlives_a_park() -> None:
    stage = Theatre()
    job = stage.session("ana", gpus=1)
    stage.run(3)
    stage.ask(i.Ask("user:ana", job.id, e.Extend(1000)))
    lease = stage.job(job.id).lease
    assert lease is not None
    parked_at = stage.now
    stage.ask(i.Ask("user:ana", job.id, e.Park()))
    stage.run(30)
    parked = stage.job(job.id)
    assert parked.state is State.PARKED
    assert parked.served >= parked_at - lease.since
    stage.ask(i.Ask("user:ana", job.id, e.Resume(person=True)))
    stage.run(3)
    again = stage.job(job.id).lease
    assert again is not None
    left = lease.expires - lease.since - parked.served
    assert again.expires - again.since == pytest.approx(left)


def test_a_stubborn_job_is_killed_before_its_gpus_are_given_away() -> None:
    stage = Theatre(count=1)
    job = stage.submit("ana", gpus=4, lasts=10_000)
    stage.engine.works[job.id] = Work(stubborn=True)
    stage.run(5)
    stage.ask(i.Ask("user:ana", job.id, e.Cancel()))
    other = stage.submit("bo", gpus=4)
    stage.run(20)
    assert stage.job(job.id).state is State.STOPPING
    assert stage.job(other.id).state is State.QUEUED
    stage.run(20)
    assert stage.job(job.id).state is State.CANCELLED
    assert stage.job(other.id).state is State.RUNNING


def test_a_restarted_broker_goes_on_where_it_was() -> None:
    stage = Theatre()
    job = stage.submit("ana", lasts=60)
    session = idle_session(stage, "bo")
    stage.restart()
    stage.run(5)
    assert stage.job(job.id).state is State.RUNNING
    assert stage.job(session).state is State.RUNNING
    stage.run(80)
    assert stage.job(job.id).state is State.COMPLETED
    assert stage.engine.ends[job.id] == 1


def test_a_reload_of_the_policy_is_one_entry_and_holds_from_now() -> None:
    stage = Theatre()
    job = stage.submit("ana", gpus=1, lasts=500)
    document = stage_document(grace="7s")
    stage.ask(i.ApplyPolicy("admin:eve", document, policy.parse(document)))
    assert stage.job(job.id).terms.grace == 7
    entries = [entry for entry in stage.store.entries(0) if entry.event == "policy.applied"]
    assert [entry.actor for entry in entries] == ["admin:eve"]


def stage_document(*, grace: str) -> str:
    return policy.DEFAULT_DOCUMENT.replace("grace: 60s", f"grace: {grace}")


def test_a_class_with_living_jobs_cannot_vanish() -> None:
    stage = Theatre()
    stage.submit("ana", lasts=500)
    document = policy.DEFAULT_DOCUMENT.replace("  batch:  ", "  other:  ")
    with pytest.raises(Refusal, match="living jobs"):
        stage.ask(i.ApplyPolicy("admin:eve", document, policy.parse(document)))
