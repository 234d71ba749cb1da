# SPDX-License-Identifier: BSD-3-Clause
"""One turn's changes, collected: they become one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from ..core import events as e
from ..core.lifecycle import advance
from ..core.model import TERMINAL, Job, JobId, Quarantined, Seconds, StageName, State
from ..core.quota import day_of, decayed
from ..store import KEPT_S, Entry, LaunchRow, PolicyRow, Spent, Usage, Writes
from .world import World

_NAMES: Mapping[type[e.Event], str] = {
    e.Place: "job.placed",
    e.Reserve: "job.reserved",
    e.Notify: "job.noticed",
    e.Reprieve: "job.reprieved",
    e.NoRoom: "job.park-skipped",
    e.Deadline: "job.deadline",
    e.Retune: "job.retuned",
    e.Prepared: "job.prepared",
    e.Started: "job.started",
    e.Refused: "job.refused",
    e.Exited: "job.exited",
    e.Freed: "job.freed",
    e.Lost: "job.lost",
    e.RestoreFailed: "job.restore-failed",
    e.Active: "job.active",
    e.Hello: "job.hello",
    e.HolderGone: "job.holder-gone",
    e.KeptLost: "job.kept-lost",
    e.Mark: "job.marked",
    e.Cancel: "job.cancel-asked",
    e.Hold: "job.held",
    e.Unhold: "job.unheld",
    e.Withdraw: "job.withdrawn",
    e.Release: "job.release-asked",
    e.Park: "job.park-asked",
    e.Resume: "job.resume-asked",
    e.Keep: "job.kept-alive",
    e.Extend: "job.extended",
    e.Adopt: "job.adopted",
    e.Force: "job.forced",
}


@dataclass(slots=True)
class Batch:
    """Applies events to the world and remembers what has to be written."""

    world: World
    now: Seconds
    dirty: dict[JobId, Job] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    usage: dict[tuple[str, str], Usage] = field(default_factory=dict)
    spent: dict[tuple[str, str, int], Spent] = field(default_factory=dict)
    launches: dict[JobId, LaunchRow] = field(default_factory=dict)
    dropped: list[JobId] = field(default_factory=list)
    quarantine_changed: bool = False
    policy: PolicyRow | None = None
    submits: dict[tuple[str, str], JobId] = field(default_factory=dict)
    servers: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    forget_before: Seconds | None = None
    changed: bool = False
    """Something the scheduler looks at changed."""
    look_at: Seconds = inf
    """When the scheduler should look again for what has not changed anything yet."""

    def apply(
        self, job_id: JobId, event: e.Event, actor: str, facts: Mapping[str, object] | None = None
    ) -> Job:
        """Advance one Job; ``Conflict`` where its state does not allow the event."""
        before = self.world.jobs[job_id]
        after, effects = advance(before, event, self.now)
        if after == before and not effects:
            return before
        self._put(after)
        if not isinstance(event, e.Prepared | e.Started) or before.state is not State.STARTING:
            self.changed = True
        elif after.state is State.RUNNING:  # it had its GPUs before, and is left alone for a while
            self.look_at = min(self.look_at, after.shield_until)
        for effect in effects:
            self._effect(after, effect)
        told = _facts(before, after, event) | dict(facts or {})
        self.journal(actor, _NAMES[type(event)], after, told)
        if after.state in TERMINAL and before.state not in TERMINAL:
            self._ended(after)
        if _begins_to_park(before, after) and (text := self.world.lacks_room(after)):
            return self.apply(job_id, e.NoRoom(text), "broker")
        return after

    def put(self, job: Job) -> None:
        """A new or changed Job."""
        self._put(job)
        self.changed = True

    def _put(self, job: Job) -> None:
        self.world.demand.saw(self.world.jobs.get(job.id), job, self.now)
        self.world.put(job)
        self.dirty[job.id] = job

    def journal(self, actor: str, event: str, job: Job | None, facts: Mapping[str, object]) -> None:
        """One more line; seq goes on without holes."""
        self.world.seq += 1
        self.entries.append(
            Entry(
                seq=self.world.seq,
                time=self.now,
                actor=actor,
                event=event,
                job="" if job is None else job.id,
                user="" if job is None else job.user,
                state="" if job is None else str(job.state),
                facts=facts,
            )
        )

    def tidy(self) -> None:
        """Forget what ended long ago, here and in the store."""
        self.forget_before = self.now - KEPT_S
        self.world.forget_ended(self.forget_before)

    def release_quarantine(self, keep: list[Quarantined], why: str) -> None:
        """Shares are proven free after all, of a gang perhaps only some; ``keep`` is the rest."""
        before, left = self.world.quarantined, {(i.job, i.attempt): i.shares for i in keep}
        if keep == before:
            return
        self.world.quarantined = keep
        self.quarantine_changed = self.changed = True
        for item in before:
            kept = left.get((item.job, item.attempt), ())
            devices = [share.device for share in item.shares if share not in kept]
            if devices:
                job = self.world.jobs.get(item.job)
                self.journal("broker", "quarantine.freed", job, {"devices": devices, "why": why})

    def _effect(self, job: Job, effect: e.Effect) -> None:
        match effect:
            case e.Released(lease=lease, seconds=seconds):
                self._charge(job, lease.milli * seconds)
                self._spend(job, day_of(lease.since), lease.milli * seconds)
            case e.Quarantine(lease=lease):
                nodes = self.world.nodes
                boots = {
                    share.node: nodes[share.node].boot
                    for share in lease.placement
                    if share.node in nodes
                }
                item = Quarantined(lease.placement, job.id, lease.attempt, boots, self.now)
                self.world.quarantined = [*self.world.quarantined, item]
                self.quarantine_changed = True
            case _:
                pass  # what was kept and is not wanted any more is dropped by a duty

    def _charge(self, job: Job, milli_seconds: float) -> None:
        key = (job.queue, job.user)
        old = self.world.usage.get(key)
        value = milli_seconds
        if old is not None:
            half_life = self.world.policy.half_life
            value += decayed(old.milli_seconds, self.now - old.time, half_life)
        self.usage[key] = self.world.usage[key] = Usage(job.queue, job.user, value, self.now)

    def _spend(self, job: Job, day: int, milli_seconds: float) -> None:
        key = (job.queue, job.user, day)
        old = self.world.spent.get(key)
        value = milli_seconds + (0.0 if old is None else old.milli_seconds)
        self.spent[key] = self.world.spent[key] = Spent(job.queue, job.user, day, value)

    def _ended(self, job: Job) -> None:
        self.dropped.append(job.id)
        self.world.memory_mib.pop(job.id, None)
        self.world.asked.pop(job.id, None)
        self.world.mute.pop(job.server, None)

    def writes(self) -> Writes:
        """Everything as one transaction."""
        return Writes(
            jobs=tuple(self.dirty.values()),
            entries=tuple(self.entries),
            usage=tuple(self.usage.values()),
            spent=tuple(self.spent.values()),
            launches=self.launches,
            drop_launches=tuple(self.dropped),
            quarantined=tuple(self.world.quarantined) if self.quarantine_changed else None,
            policy=self.policy,
            submits=self.submits,
            servers=self.servers,
            nodes=self.nodes,
            forget_before=self.forget_before,
        )


def _begins_to_park(before: Job, after: Job) -> bool:
    began = after.state is State.STOPPING and before.state is not State.STOPPING
    return began and after.stages[0].name is StageName.PARK


def _facts(before: Job, after: Job, event: e.Event) -> dict[str, object]:
    """What a reader of the journal wants to know of this transition."""
    facts: dict[str, object] = {"from": str(before.state), "attempt": after.attempt}
    if after.lease is not None and before.lease is None:
        facts["devices"] = [
            {"node": share.node, "device": share.device, "milli": share.milli}
            for share in after.lease.placement
        ]
        facts["expires"] = after.lease.expires
    if after.notice is not None and after.notice != before.notice:
        facts |= {"reason": str(after.notice.reason), "deadline": after.notice.deadline}
        facts |= {"for": after.notice.for_job} if after.notice.for_job else {}
    if after.state is State.STOPPING:
        facts["stage"] = str(after.stages[0].name)
    if after.kept and after.kept != before.kept:
        facts["kept"] = str(after.rung)
    if isinstance(event, e.Exited):
        facts |= {"code": event.code, "rank": event.rank}
    if isinstance(event, e.Refused | e.Lost | e.RestoreFailed | e.NoRoom):
        facts["text"] = event.text
    if after.outcome and after.outcome != before.outcome:
        facts["outcome"] = after.outcome
    return facts
