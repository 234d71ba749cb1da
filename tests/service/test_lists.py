# SPDX-License-Identifier: BSD-3-Clause
"""Several jobs in one request: all of them or none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpubroker.client import AsyncClient, Conflict, Refusal
from jupyter_gpubroker.wire import ListedIn, RequestIn

from .conftest import House


def ana(house: House) -> AsyncClient:
    return house.client(house.hub.user("ana", "t-ana", server=""))


def listed(key: str = "", **more: Any) -> ListedIn:
    return ListedIn(argv=("true",), key=key, **more)


@pytest.mark.asyncio
async def test_a_list_is_submitted_in_its_order_and_its_keys_give_the_same_jobs(
    house: House,
) -> None:
    client = ana(house)
    asked = [listed("a", name="first"), listed(name="second"), listed("c", name="third")]
    made = await client.submit_list(asked)
    assert [job.new for job in made] == [True] * 3
    shown = [await client.show(job.id) for job in made]
    assert [job.name for job in shown] == ["first", "second", "third"]
    assert {job.user for job in shown} == {"ana"}
    again = await client.submit_list([asked[2], listed("d"), asked[0], listed("d")])
    assert [job.new for job in again] == [False, True, False, False]
    assert [again[0].id, again[2].id] == [made[2].id, made[0].id]
    assert again[1].id == again[3].id
    assert len(await client.jobs()) == 4
    launch = house.desk.stage.store.launch(made[1].id)
    assert launch is not None
    assert launch.argv == ("true",)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (listed(request=RequestIn(gpus=9)), Refusal, r"^jobs\.1\.gpus: no node has 9"),
        (listed(request=RequestIn(time="1y")), Refusal, r"^jobs\.1\.time: "),
        (listed(request=RequestIn(time="30d")), Refusal, r"^jobs\.1\.time: class batch allows"),
        (listed(queue="nowhere"), Refusal, r"^jobs\.1\.queue: 'nowhere' is not a queue"),
        (listed("old", name="other"), Conflict, r"^jobs\.1: this Idempotency-Key was used"),
        (listed("twice", name="other"), Conflict, r"^jobs\.1: this Idempotency-Key was used"),
    ],
)
@pytest.mark.asyncio
async def test_of_a_list_with_anything_wrong_nothing_is_submitted(
    wrong: ListedIn, error: type[Exception], message: str, house: House
) -> None:
    client = ana(house)
    await client.submit_list([listed("old")])
    seq = house.desk.world.seq
    with pytest.raises(error, match=message):
        await client.submit_list([listed("twice"), wrong, listed()])
    assert house.desk.world.seq == seq
    assert len(await client.jobs()) == 1


@pytest.mark.asyncio
async def test_a_list_counts_as_a_whole_against_what_a_user_may_have_waiting(
    house: House,
) -> None:
    classes = house.desk.world.policy.classes
    few = replace(classes["batch"], waiting=3)
    house.desk.world.policy = replace(house.desk.world.policy, classes={**classes, "batch": few})
    client = ana(house)
    with pytest.raises(Refusal, match=r"^jobs\.3\.class: ana has 3 waiting jobs"):
        await client.submit_list([listed()] * 4)
    assert await client.jobs() == []
    assert len(await client.submit_list([listed()] * 3)) == 3
