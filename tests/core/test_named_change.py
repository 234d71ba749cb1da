# SPDX-License-Identifier: BSD-3-Clause
"""What a ``why`` names is the change that helps: make it, and the Job starts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.model import (
    Blocked,
    Class,
    Device,
    Holder,
    Kind,
    Queue,
    Request,
    State,
    Why,
)
from jupyter_gpubroker.core.why import EXPLAINED, FIRST

from .random_worlds import random_world, worlds
from .worlds import World, ask, kept, node, on, policy


def copy(world: World) -> World:
    """The same world, to be changed alone."""
    return replace(
        world,
        nodes=dict(world.nodes),
        jobs=dict(world.jobs),
        idle=dict(world.idle),
        quarantined=list(world.quarantined),
        barred=dict(world.barred),
    )


def settle(world: World) -> None:
    """Do what the scheduler wants until it wants nothing, and has nothing to look at again;
    nobody leaves meanwhile."""
    for _ in range(20):
        plan = world.plan()
        world.apply(plan)
        if not (plan.place or plan.notice or plan.reprieve or plan.next == world.now):
            return
    raise AssertionError("it does not come to rest")


def change(world: World, id_: str, why: Why) -> None:
    """Exactly what the ``why`` names."""
    job = world.jobs[id_]
    if why.code is Blocked.SERVER:
        world.barred.pop(id_, None)
        world.put(replace(job, holder=Holder("local", "boot-1", 1, 1)))
    elif why.code is Blocked.HELD:
        world.put(replace(job, state=State.QUEUED, until=None))
    elif why.nodes:
        mend(world, why)
    elif why.waits_for:
        world.remove(*why.waits_for)
    else:
        for rule in why.rules:
            raise_rule(world, rule)


def mend(world: World, why: Why) -> None:
    """Those nodes can be used, and nothing is held back on them."""
    if why.until is not None:
        world.now = why.until  # only then they are tried again
        return
    for name in why.nodes:
        old = world.nodes[name]
        devices = tuple(replace(device, usable=True) for device in old.devices)
        world.nodes[name] = replace(old, usable=True, devices=devices)
    world.quarantined[:] = [
        held
        for held in world.quarantined
        if not any(share.node in why.nodes for share in held.shares)
    ]


def raise_rule(world: World, rule: str) -> None:
    """That limit is no more."""
    if rule == "reserve":
        world.reserve = ()
        return
    part, name, limit = rule.split(".")
    old = world.policy.classes if part == "classes" else world.policy.queues
    lifted = {"quota": {}, "cohort": None} if limit == "quota" else {limit: None}
    new = {**old, name: replace(old[name], **lifted)}
    world.policy = replace(world.policy, **{part: new})


def could_ever_run(why: Why) -> bool:
    """False if the sentence says that no node is like that."""
    return not (why.code is Blocked.IMPOSSIBLE and not why.nodes)


def bar(why: Why) -> object:
    """What keeps it: no such bar may be told twice."""
    return why.code, why.rules, why.nodes, why.until is None


def starts_by_what_is_named(world: World, id_: str) -> None:
    """Make one named change after the other until it starts. Whom it waits for is enough;
    another bar is followed by a reason of another kind."""
    seen: list[Why] = []
    while world.jobs[id_].lease is None:
        why = world.plan().why[id_]
        if not could_ever_run(why):
            return
        assert all(bar(why) != bar(one) for one in seen), (why, seen)
        change(world, id_, why)
        settle(world)
        if why.waits_for:
            assert world.jobs[id_].lease is not None, (why, world.plan().why.get(id_), seen)
        seen.append(why)


@settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.reuse, Phase.generate),  # a world is its number: nothing is shrunk
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(worlds())
def test_every_job_that_waits_starts_when_the_change_it_names_is_made(world: World) -> None:
    settle(world)
    for id_ in world.plan().why:
        starts_by_what_is_named(copy(world), id_)


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,  # about 1 world in 60 fails: docs/limits.md, "One reason after the other"
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.integers(0, 2**32), st.integers(10, 30), st.integers(8, 18))
def test_where_queues_have_quotas_as_well(seed: int, running: int, waiting: int) -> None:
    world = random_world(seed, running, waiting, limits=False, quotas=True)
    settle(world)
    for id_ in world.plan().why:
        starts_by_what_is_named(copy(world), id_)


@settings(
    max_examples=20,
    deadline=None,
    phases=(Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(worlds(), st.lists(st.sampled_from((ask(1), ask(2), ask(0.5))), min_size=1, max_size=6))
def test_who_waits_for_room_of_sessions_starts_without_that_rule(
    world: World, room: list[Request]
) -> None:
    world.reserve = tuple(sorted(room, key=Request.most_milli, reverse=True))
    settle(world)
    for id_, why in world.plan().why.items():
        if why.code is Blocked.RESERVE:
            assert (why.rules, why.waits_for) == (("reserve",), ())
            starts_by_what_is_named(copy(world), id_)


# --- each kind of change --------------------------------------------------------------


def named(world: World, id_: str = "x") -> Why:
    """The ``why`` of a Job that starts by what it names."""
    why = world.plan().why[id_]
    assert could_ever_run(why)
    starts_by_what_is_named(copy(world), id_)
    return why


def test_a_limit_of_a_user_names_the_rule_and_who_is_over_it() -> None:
    world = World().add(node("node1", 4))
    classes = {**world.policy.classes, "batch": Class("batch", (Kind.BATCH,), running=1)}
    world.policy = policy(classes=classes)
    world.runs("r", on("node1/0"), kind=Kind.BATCH, user="ana")
    world.waits("first", ask(1), user="ana")
    world.waits("x", ask(1), user="ana")
    why = named(world)
    assert why.text == (
        "ana has 1 of at most 1 running in class batch; 1 job ahead of it (ana) could start first"
    )
    assert (why.waits_for, why.rules) == (("r", "first"), ("classes.batch.running",))
    raise_rule(world, *why.rules)
    assert sorted(dict(world.plan().place)) == ["first", "x"]


def test_two_limits_and_people_on_the_gpus_are_named_together() -> None:
    world = World().add(node("node1", 4))
    classes = {**world.policy.classes, "batch": Class("batch", (Kind.BATCH,), running=1)}
    queues = {**world.policy.queues, "default": Queue("default", running_gpus=3)}
    world.policy = policy(classes=classes, queues=queues)
    world.runs("r", on("node1/0"), kind=Kind.BATCH, user="ana")
    world.runs("bo", on("node1/1", "node1/2"), expires=world.now + 99)
    world.runs("cy", on("node1/3"), queue="vision")
    world.waits("x", ask(3), user="ana")
    why = named(world)
    assert why.text == (
        "ana has 1 of at most 1 running in class batch, "
        "and queue default has 2 of at most 3 GPUs in use"
    )
    assert why.rules == ("classes.batch.running", "queues.default.running_gpus")
    assert sorted(why.waits_for) == ["bo", "r"]


def test_room_for_sessions_names_the_rule_that_keeps_it() -> None:
    world = World(reserve=(ask(1),)).add(node("node1", 2))
    world.runs("r", on("node1/0"), kind=Kind.BATCH)
    world.waits("x", ask(1))
    why = named(world)
    assert (why.code, why.rules, why.waits_for) == (Blocked.RESERVE, ("reserve",), ())


def test_a_limit_that_is_smaller_than_the_job_names_only_the_rule() -> None:
    world = World().add(node("node1", 4))
    world.policy = policy(queues={"default": Queue("default", running_gpus=2)})
    world.waits("x", ask(3))
    why = named(world)
    assert why.text == "queue default has 0 of at most 2 GPUs in use, and this needs 3"
    assert (why.waits_for, why.rules) == ((), ("queues.default.running_gpus",))


def test_a_device_that_cannot_be_used_is_named_with_its_node() -> None:
    gpus = (Device("a", "h100", 1024), Device("b", "h100", 1024, 1, usable=False, note="Xid 79"))
    world = World().add(node("node1", 1), node("node2", devices=gpus), node("node3", 0))
    world.waits("x", ask(2))
    why = named(world)
    assert why.text == "no node can take 2 GPUs at present; not usable now: node2 (Xid 79)"
    assert (why.code, why.nodes) == (Blocked.IMPOSSIBLE, ("node2",))


def test_only_broken_nodes_that_would_help_are_named() -> None:
    world = World().add(node("node1", 1, usable=False), node("node2", 2, usable=False))
    world.add(node("node3", 4, usable=False, flavor="a100"))
    world.waits("x", ask(2, flavors=("h100",)))
    assert named(world).nodes == ("node2",)


def test_what_no_node_is_like_says_what_could_run() -> None:
    world = World().add(node("node1", 2))
    world.waits("x", ask(4))
    why = world.plan().why["x"]
    assert (why.code, why.nodes, why.waits_for) == (Blocked.IMPOSSIBLE, (), ())
    assert why.text == "no node has 4 GPUs (nearest that can run: 2 GPUs on 1 node)"


def test_parked_gpu_memory_names_its_node() -> None:
    world = World().add(node("node1", 1, usable=False, note="drained by eve"), node("node2", 1))
    world.session("x", ask(1), kept=(kept("node1", "node1/0"),))
    why = named(world)
    assert (why.code, why.nodes) == (Blocked.AFFINITY, ("node1",))
    assert why.text == (
        "its GPU memory is parked on node1, which cannot take it now; "
        "not usable now: node1 (drained by eve); "
        "to go on elsewhere without it, discard what is kept and ask anew"
    )


def test_a_held_job_starts_when_it_is_released() -> None:
    world = World().add(node("node1", 1))
    held = replace(world.waits("x", ask(1)), state=State.HELD, until=world.now + 9)
    world.put(held)
    assert named(world).code is Blocked.HELD


def test_a_session_behind_a_server_says_that_and_then_for_whom_it_waits() -> None:
    world = World().add(node("node1", 1))
    world.runs("ana", on("node1/0"))
    world.session("x", ask(1), attach=True)
    assert named(world).code is Blocked.SERVER
    change(world, "x", world.plan().why["x"])
    assert named(world).waits_for == ("ana",)


def test_jobs_far_behind_name_those_in_front_until_it_is_their_turn() -> None:
    world = World().add(node("node1", 1))
    world.runs("ana", on("node1/0"))
    for index in range(EXPLAINED + 2 * FIRST):
        world.waits(f"w{index:02}", ask(1))
    world.waits("x", ask(1))
    world.policy = policy(jobs_considered=EXPLAINED + FIRST)
    texts = []
    while "x" not in dict(world.plan().place):
        why = world.plan().why["x"]
        texts.append(why.text)
        world.remove(*why.waits_for)
    assert texts == [
        f"{EXPLAINED + FIRST} jobs ahead of it are looked at first",
        f"{EXPLAINED + FIRST} jobs ahead of it are looked at first",
        f"{EXPLAINED} jobs ahead of it wait for GPUs as well",
        "needs 1 GPU; 0 of 1 GPU is free, held by ana (1); "
        f"{EXPLAINED - FIRST} jobs ahead of it (w30, w31, w32 and 37 more) could start first",
    ]
