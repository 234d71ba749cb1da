# SPDX-License-Identifier: BSD-3-Clause
"""What must be true of the engines, computed from committed state alone.

A duty that was lost with a crash is computed again; one that was done is not asked
for again before a while, and doing it twice is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core.model import Job, Mode, Seconds, StageName, State
from .inputs import Act, Did, Duty, DutyDone
from .world import World

AGAIN_S = 5.0
"""A duty that was performed and is still needed is asked for again after this."""

_BY_STAGE = {
    StageName.PARK: Act.PARK,
    StageName.SAVE: Act.TERM,
    StageName.RESTART: Act.TERM,
    StageName.SIGNAL: Act.TERM,
    StageName.KILL: Act.KILL,
    StageName.FENCE: Act.KILL,
}


def needed(world: World, job: Job) -> Duty | None:
    """The one thing an engine has to do for this Job now, if any."""
    if job.lease is None:
        return None
    if job.state is State.STARTING:
        if job.key in world.acked or job.prepared:
            return None
        act = Act.START
    elif job.state is State.STOPPING:
        act = _BY_STAGE[job.stages[0].name]
    else:
        return None
    return Duty(
        act=act,
        engine=job.lease.engine,
        key=job.key,
        mode=job.lease.mode,
        binding=job.binding,
        placement=job.lease.placement,
        user=job.user,
        server=job.server,
        time_limit=job.lease.expires - job.lease.since,
        kept=job.kept if job.lease.mode is Mode.HELD else (),
    )


def due(world: World, extra: Iterable[Duty], now: Seconds) -> tuple[list[Duty], Seconds | None]:
    """Duties to perform now, and when to look again for those that were tried."""
    leased = {job.key: job for job in world.leased()}
    world.acked = {key: time for key, time in world.acked.items() if key in leased}
    wanted = [duty for job in leased.values() if (duty := needed(world, job)) is not None]
    duties: list[Duty] = []
    next_look: Seconds | None = None
    keys: dict[tuple[Act, object], None] = {}
    for duty in (*wanted, *extra):
        mark = (duty.act, duty.key)
        keys[mark] = None
        # A stop waits for the start of its key: an engine must never see them swapped.
        if mark in world.busy or (Act.START, duty.key) in world.busy:
            continue
        again = world.duties.get(mark, 0.0)
        if now < again:
            next_look = again if next_look is None else min(next_look, again)
            continue
        world.duties[mark] = now + AGAIN_S
        world.busy[mark] = None
        duties.append(duty)
    for mark in [mark for mark in world.duties if mark not in keys and mark not in world.busy]:
        if now >= world.duties[mark]:
            del world.duties[mark]
    return duties, next_look


def finished(world: World, done: DutyDone, now: Seconds) -> None:
    """A duty was performed: remember when it may be asked for again."""
    mark = (done.duty.act, done.duty.key)
    world.busy.pop(mark, None)
    world.duties[mark] = now + (1.0 if done.did is Did.FAILED else AGAIN_S)
    if done.duty.act is Act.START and done.did is Did.DONE:
        world.acked[done.duty.key] = now
