# SPDX-License-Identifier: BSD-3-Clause
"""What decides when it is a Job's turn, in words."""

from __future__ import annotations

from jupyter_gpubroker.core.factors import factors
from jupyter_gpubroker.core.model import Order, Queue

from .worlds import World, ask, node, on, policy


def told(world: World, id_: str = "x") -> dict[str, str]:
    """Name -> words, in order."""
    found = factors(world.jobs[id_], world.snapshot(), world.policy)
    assert len(dict(found)) == len(found)
    return dict(found)


def test_class_age_queue_and_user_are_told_in_the_order_in_which_they_count() -> None:
    world = World().add(node("node1"))
    world.waits("x", ask(1), user="ana", submitted=world.now - 7200)
    world.waits("y", ask(1), user="bo")
    world.waits("z", ask(1), user="cy", queue="vision")
    world.usage = {("default", "ana"): 30.0, ("default", "bo"): 10.0, ("vision", "cy"): 120.0}
    assert told(world) == {
        "class": "batch has priority 0",
        "age": "waits for 2 h; after 3 d it leads its class",
        "queue": "default had 25 % of the GPU time lately (factor 2): 0 of 1 others come first",
        "user": "ana had 75 % of the GPU time lately (factor 0.67): "
        "1 of 1 others come first in default",
    }


def test_who_waits_too_long_or_has_a_reservation_is_told_so() -> None:
    world = World(policy=policy(max_age=60.0)).add(node("node1"))
    world.waits("x", ask(1), submitted=world.now - 60)
    world.reserves("x", on("node1/0"), world.now + 9)
    assert list(told(world)) == ["reserved", "class", "age", "queue", "user"]
    assert told(world)["reserved"] == "a place is reserved for it: that is settled"
    assert told(world)["age"] == "waits for 60 s: longer than 60 s, so it leads its class"
    world.reserves("x", on("node1/0"))
    assert told(world)["reserved"] == "a place is promised to it: that is settled"
    assert told(world)["user"].endswith("(nothing used lately): no other in default")


def test_a_queue_that_owns_gpus_says_so() -> None:
    world = World(policy=policy(queues={"default": Queue("default", cohort="lab")}))
    world.add(node("node1")).waits("x", ask(1))
    assert told(world)["quota"] == (
        "what stays inside the GPUs that default owns goes before what borrows"
    )


def test_a_queue_of_another_order_tells_that_instead_of_the_user() -> None:
    for order, words in (
        (Order.SHORTEST, "the shortest first: it has 2 GPU-hours left by its limit"),
        (Order.ATTAINED, "who had the least first: it had 0 GPU-hours, which is level 0"),
    ):
        world = World(policy=policy(queues={"default": Queue("default", order=order)}))
        world.add(node("node1"))
        world.waits("x", ask(2))
        assert list(told(world)) == ["class", "age", "queue", "order"]
        assert told(world)["order"] == words
