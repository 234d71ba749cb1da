# SPDX-License-Identifier: BSD-3-Clause
"""The working state of one cycle: each step of ``schedule`` is one method here."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from math import inf

from . import outcome
from .leaving import notice_id
from .ledger import SOON, Claim, Column, Ledger, View, lease_of, leased, taken
from .line import is_promised, keeps_free, overtakes
from .merge import merged
from .model import (
    LEAVING,
    Blocked,
    Job,
    JobId,
    Kind,
    Notice,
    Placement,
    Plan,
    Policy,
    Reason,
    Request,
    Reservation,
    Seconds,
    Snapshot,
    Why,
)
from .on_demand import OnDemand
from .placement import Ask, Packing, fit
from .preemption import Way, make_way, minimal
from .quota import Limits, ends
from .reclaim import borrows_more
from .reserve import Reserve
from .room import Holding, ShapeKey, end, opening, shape
from .victims import Prey, Told, Victim, leaves_for, recallable


class Failure(Enum):
    """Why a step did not succeed."""

    NO_ROOM = auto()
    KEPT_BACK = auto()
    """There is room that is kept for sessions."""


Equal = tuple[str, str, tuple[tuple[str, ...], ...], Request]
"""Class, queue, groups that are limited, and Request."""


class Cycle:
    """The working state of one ``schedule`` call; each step is one method."""

    places: dict[JobId, int]
    """In the line before the queues were merged, where they have quotas."""

    def __init__(self, snapshot: Snapshot, policy: Policy, line: Sequence[Job]) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.line = line
        """In the order of their turns once they had them."""
        self.ledger = Ledger(snapshot, policy)
        self.packing = Packing.of(snapshot, policy)
        self.limits = Limits(snapshot, policy)
        self.reserve = Reserve(snapshot, self.ledger)
        self.prey = Prey(snapshot, policy, self.ledger.quotas)
        self.barred: dict[JobId, Why] = {}
        """May not start now, whatever is free."""
        self.limited: dict[JobId, Why] = {}
        """A limit keeps them from starting."""
        self.kept_back: dict[JobId, bool] = {}
        """They would start but for the sessions that may come."""
        self.short: dict[JobId, Job] = {}
        """Their queue has no quota left for them, and its cohort none to lend."""
        self.until: dict[JobId, Seconds] = {}
        """When those have left, at the latest, for whom promised Jobs wait."""
        self.starts: dict[JobId, Seconds] = {}
        """When promised Jobs start at the latest."""
        self.placed: dict[JobId, tuple[Job, Placement]] = {}
        self.promised: dict[JobId, tuple[Job, Placement]] = {}
        self.reserved: dict[JobId, Reservation] = {}
        self._had: dict[JobId, Job] = {}
        """Those whose turn was not in the order of the line."""
        self._heads: dict[str, JobId] = {}
        """Flavor -> the first that lacks such GPUs, for whom they are kept free."""
        self._notices: dict[JobId, Notice] = {}
        self._failed: dict[tuple[str, Hashable, ShapeKey, View], Failure] = {}
        self._vain: dict[Equal, Job] = {}
        """Equal Jobs that lack GPUs, see ``waits_in_vain``."""
        self._leased = leased(snapshot)
        leaving = [job for job in self._leased if job.state in LEAVING]
        self.recalled = [job for job in leaving if recallable(job)]
        """Told to leave, and so far in this cycle nobody needs it."""
        self.leaving = [job for job in leaving if not recallable(job)]
        """In ``soon`` what they hold is free."""
        self._awaited = {job.notice.for_job: True for job in leaving if job.notice is not None}
        """For whom they leave."""
        self._left_by = max((job.deadline or inf for job in leaving), default=snapshot.now)
        """When all who leave have left."""
        for job in self.leaving:
            self.ledger.leave(job)
        self.kept: list[Job] = []
        """Those who have a Reservation of an earlier cycle."""
        self._claims: dict[JobId, Claim] = {}
        """Of those who have a Reservation of an earlier cycle and whose turn is still to come:
        what nobody else gets until then."""
        self._leave_for: dict[JobId, list[Job]] = {}
        """Who still may stay, and leaves for one of those."""
        self._claim()

    def turns(self) -> Iterator[Job]:
        """Step 1. The line, but of the queues' first Jobs those go before the others that stay
        inside what their queue owns."""
        quotas = self.ledger.quotas
        if quotas is None:
            yield from self.line
            return

        def rank(job: Job) -> int:
            return 0 if is_promised(job) else 1 if quotas.inside(job) else 2

        for job in merged(self.line, rank):
            self._had[job.id] = job
            yield job

    def decide(self, job: Job) -> None:
        """Its turn has come: what was reserved for it, or for one that it overtakes, is not any
        more."""
        for id_ in [*self._claims]:
            other = self.snapshot.jobs[id_]
            if id_ == job.id or self._is_overtaken(other, job):
                self._unclaim(other)

    def waits_in_vain(self, job: Job) -> bool:
        """True if an equal one has had its turn, waits for GPUs or quota, and nothing was given
        back since: it would be the same."""
        equal = self._equal(job) if self._vain else None
        if equal is None or (known := self._vain.get(equal)) is None:
            return False
        self.kept_back |= {job.id: True} if known.id in self.kept_back else {}
        self.short |= {job.id: job} if known.id in self.short else {}
        return True

    def bars(self, job: Job) -> bool:
        """Step 2."""
        if (bar := self._bar(job)) is not None:
            self.barred[job.id] = bar
            return True
        kept = self._kept_for(job)
        limit = self.limits.bar(job, besides=kept)
        if limit is not None:
            self.limited[job.id] = limit
            over = self._over_by_then(job)
            if self.limits.bar(job, [other.job.id for other in over], kept) is None:
                self._keep_reservation(job, over)  # the limit is free again by then
        elif self._is_short(job) and not self._may_take(job):
            self._lacks_quota(job)
        return job.id in self.limited or job.id in self.short

    def fits_now(self, job: Job) -> Placement | None:
        """Step 3."""
        view = self.ledger.view(Column.BOTH, self.end(job, self.snapshot.now))
        if (failed := self._failure("now", job, view)) is not None:
            self.kept_back |= {job.id: True} if failed is Failure.KEPT_BACK else {}
            return None
        found = fit(self.ledger, job, view, self.packing)
        if found is None and (own := self._own(job)):
            # There is room now, but others count on what those leave who leave for it.
            way = minimal(self.ledger, job, own, self.packing, view)
            if way is not None:
                self._leave(way)
                return way.placement
        elif found is None:
            self._fail("now", job, view)
        elif not self.reserve.allows(job, found, Column.BOTH):
            self.kept_back[job.id] = True
            self._fail("now", job, view, Failure.KEPT_BACK)
            return None
        return found

    def _own(self, job: Job) -> list[Victim]:
        """Those who leave for it, or from where it was promised a place, and still may stay."""
        victims = self._victims(job) if self.recalled else ()
        return [victim for victim in victims if victim.told <= Told.WHERE_PROMISED]

    def _leave(self, way: Way) -> None:
        """Those have to go who are in the way."""
        for victim in way.victims:
            self.ledger.leave(victim.job)
            self.leaving.append(victim.job)
        gone = [victim.job.id for victim in way.victims]
        self.recalled = [other for other in self.recalled if other.id not in gone]

    def promise(self, job: Job) -> Way | None:
        """Step 4. Not for who could start now but for the sessions that may come."""
        if job.id in self.kept_back or not (self.leaving or self.recalled or self._leave_for):
            return None
        own = self._own(job)
        view = self._soon(job, own)
        if not own and self._failure("soon", job, view) is not None:
            return None
        found = self._allowed(job, minimal(self.ledger, job, own, self.packing, view))
        if found is None and not own:
            self._fail("soon", job, view)
        return found

    def make_way(self, job: Job) -> Way | None:
        """Step 5. The same: the room for sessions makes nobody leave."""
        if job.id in self.kept_back:
            return None
        candidates = self._victims(job)
        view = self._soon(job, candidates)
        if not candidates or self._failure("way", job, view) is not None:
            return None
        considered = self.policy.nodes_considered
        way = make_way(self.ledger, job, candidates, self.packing, considered, view)
        way = self._allowed(job, way)
        if way is None:
            self._fail("way", job, view)
        return way

    def _allowed(self, job: Job, way: Way | None) -> Way | None:
        """Nobody leaves for the room for sessions: the way is one without it, or none."""
        if way is None:
            return None
        at_work = [v.job for v in way.victims if v.reason is Reason.PREEMPTED]
        more = borrows_more(job, way.placement, at_work, self.ledger.quotas)
        leave = [victim.job for victim in way.victims]
        allows = self.reserve.allows(job, way.placement, Column.SOON, leave)
        return way if allows and not more else None

    def place(self, job: Job, placement: Placement) -> None:
        """The Job starts."""
        self.ledger.take(placement, job.request, self.end(job, self.snapshot.now), job.queue)
        self._admit(job)
        self.placed[job.id] = (job, placement)

    def grant(self, job: Job, way: Way) -> None:
        """The Job is promised its place; who does not know yet is told, all with one deadline:
        not before those who know already have to go."""
        now = self.snapshot.now
        times = [now + v.job.terms.grace for v in way.victims if v.told is Told.NOT_YET]
        times += [victim.job.notice.deadline for victim in way.victims if victim.job.notice]
        deadline = max(times, default=now)
        for victim in way.victims:
            told = victim.job.notice
            if told is None:
                name = notice_id(victim.job, victim.reason, now)
                self._notices[victim.job.id] = Notice(victim.reason, deadline, job.id, name)
            elif victim.told is not Told.FOR_THIS:
                self._notices[victim.job.id] = replace(told, for_job=job.id)
        theirs = [a for v in way.victims for a, _ in self.ledger.amounts(*taken(v.job))]
        before = [amount.soon for amount in theirs]
        self._leave(way)
        self._left_by = max(self._left_by, deadline)
        start = self._start(job, way.victims)
        self.ledger.promise(way.placement, job.request, self.end(job, start), job.queue)
        self.starts[job.id] = start
        self._admit(job)
        self.promised[job.id] = (job, way.placement)
        self.until[job.id] = deadline
        if any(amount.soon > soon for amount, soon in zip(theirs, before, strict=True)):
            self._try_again()  # they leave more than it takes

    def block(self, job: Job) -> None:
        """Step 6. The first that lacks GPUs of a flavor gets a Reservation: the place that is
        free for it first when all Leases last as long as they may."""
        if self._is_short(job):
            self._lacks_quota(job)
            return
        self._remember(job)
        if not keeps_free(job, self.snapshot.now, self.policy):
            return
        if any(flavor in self._heads for flavor in self.ledger.flavors_for(job.request)):
            return
        view = self.ledger.view(Column.SOON, inf)
        holdings = [each for each in self.holdings() if each.end < inf]
        found = opening(self.ledger, holdings, lambda: self._beside(job, view))
        if found is None:
            return
        count, placement = found
        start = max([self._left_by, *(each.end for each in holdings[:count])])
        self._reserve(job, Reservation(placement, start), holdings)

    def _beside(self, job: Job, view: View) -> Placement | None:
        """Where it fits and leaves room for sessions."""
        found = fit(self.ledger, job, view, self.packing)
        return found if found and self.reserve.allows(job, found, view.column) else None

    def end(self, job: Job, start: Seconds) -> Seconds:
        """When the Job has ended at the latest if it starts then."""
        return start + job.remaining(self.policy.classes[job.class_name].time_default)

    def leavings(self) -> list[Holding]:
        """What those have who leave; first to end first."""
        found = []
        for job in self.leaving:
            notice = self._notices.get(job.id)
            end = job.deadline if notice is None else notice.deadline
            found.append(Holding(job, lease_of(job).placement, end or inf, soon=False))
        return sorted(found, key=lambda holding: (holding.end, holding.job.id))

    def holdings(self) -> list[Holding]:
        """All that is held and not leaving, and all that is promised; first to end first."""
        leaving = [*self.leaving, *(o for others in self._leave_for.values() for o in others)]
        gone = dict.fromkeys(job.id for job in leaving)
        stay = dict.fromkeys(job.id for job in self.recalled)
        found = [
            Holding(job, lease.placement, lease.expires if job.id in stay else ends(job) or inf)
            for job in self._leased
            if (lease := job.lease) is not None and job.id not in gone
        ]
        for job, placement in self.placed.values():
            found.append(Holding(job, placement, self.end(job, self.snapshot.now)))
        for job, placement in self.promised.values():
            end = self.end(job, self.starts[job.id])
            found.append(Holding(job, placement, end, now=False))
        return sorted(found, key=lambda holding: (holding.end, holding.job.id))

    def plan(self) -> Plan:
        """The outcome, with a reason for everybody who still waits."""
        if self._had:
            self.places = {job.id: index for index, job in enumerate(self.line)}
            rest = [job for job in self.line if job.id not in self._had]
            self.line = [*self._had.values(), *rest]
        return Plan(
            place=tuple((id_, where) for id_, (_, where) in self.placed.items()),
            notice=tuple(self._notices.items()),
            reprieve=tuple(job.id for job in self.recalled),
            why=OnDemand(lambda: outcome.reasons(self)),
            next=outcome.next_look(self) if len(self.line) > len(self.placed) else None,
            reserve=(*outcome.promises(self), *self.reserved.items()),
        )

    def _victims(self, job: Job) -> tuple[Victim, ...]:
        return self.prey.victims(job, self.recalled, self._notices)

    def _bar(self, job: Job) -> Why | None:
        if job.attach and job.holder is None and job.id not in self.snapshot.barred:
            return Why(Blocked.SERVER, "waiting for its Jupyter server to come up")
        return self.snapshot.barred.get(job.id)

    def _claim(self) -> None:
        """What was reserved is nobody else's before the turn of whom it was reserved for."""
        self.kept = [job for job in self.line if job.reserved is not None]
        holders = [job for job in self.kept if not self._bar(job)]
        holdings = self.holdings() if not all(map(is_promised, holders)) else []
        for job in holders:
            if job.reserved is not None and not is_promised(job):
                self._keep_free(job, job.reserved, holdings)
                self._claims[job.id] = ()
        promised = [job for job in holders if is_promised(job)]
        for job in promised:
            self._leave_for[job.id] = [o for o in self.recalled if leaves_for(o, job.id)]
            for other in self._leave_for[job.id]:
                self.recalled.remove(other)
                self.ledger.leave(other)
        for job in promised:
            assert job.reserved is not None
            where = job.reserved.placement
            self._claims[job.id] = self.ledger.claim(where, job.request, job.queue)
        for job in reversed(promised):  # what their victims leave over
            over = [self.ledger.claim(*taken(other)) for other in self._leave_for[job.id]]
            self._claims[job.id] += tuple(part for parts in over for part in parts)

    def _unclaim(self, job: Job) -> None:
        """Who leaves for it may stay after all, unless others count on that as well."""
        assert job.reserved is not None, job
        self.ledger.give_back(self._claims.pop(job.id))
        if not is_promised(job):
            found = job.reserved
            self.ledger.release(found.placement, job.request, found.start, job.queue)
        for other in self._leave_for.pop(job.id, ()):
            placement, request, queue = taken(other)
            if self.ledger.holds(placement, request, SOON, queue):
                self.ledger.stay(other)
                self.recalled.append(other)
            else:
                self.leaving.append(other)
        self._try_again()

    def _kept_for(self, job: Job) -> list[Job]:
        """Those with a Reservation that begins before the Job ends: what they may use of a limit
        is kept for them as well."""
        end = self.end(job, self.snapshot.now)
        kept = [self.snapshot.jobs[id_] for id_ in (*self._claims, *self.reserved)]
        starts = {other.id: other.reserved.start for other in kept if other.reserved}
        starts |= {id_: found.start for id_, found in self.reserved.items()}
        return [other for other in kept if starts[other.id] < end and not is_promised(other)]

    def _is_overtaken(self, other: Job, job: Job) -> bool:
        """A promise stands, for people may have left for it, and those who have one went by
        what was reserved."""
        lower = overtakes(job, other, self.policy)
        return lower and not is_promised(other) and not is_promised(job)

    def _over_by_then(self, job: Job) -> list[Holding]:
        """What has ended when what is reserved for the Job begins; empty without that."""
        if job.reserved is None or is_promised(job):
            return []
        return [other for other in self.holdings() if other.end <= job.reserved.start]

    def _lacks_quota(self, job: Job) -> None:
        """It keeps its Reservation where its quota is free again by then."""
        self.short[job.id] = job
        self._remember(job)
        self._keep_reservation(job, self._over_by_then(job))

    def _keep_reservation(self, job: Job, over: Sequence[Holding]) -> None:
        """If it still can start there when those have ended."""
        found = job.reserved
        if found is None or not over:
            return
        with self.ledger.trial():
            end(self.ledger, over)
            keeps = self.ledger.holds(found.placement, job.request, SOON, job.queue)
        if keeps:
            self._reserve(job, found, over)

    def _reserve(self, job: Job, found: Reservation, holdings: Sequence[Holding]) -> None:
        self.reserved[job.id] = found
        self._keep_free(job, found, holdings)
        self._heads |= dict.fromkeys(self.ledger.flavors_for(job.request), job.id)

    def _keep_free(self, job: Job, found: Reservation, holdings: Sequence[Holding]) -> None:
        ended = [
            (each.placement, each.job.request, each.job.queue)
            for each in holdings
            if each.end <= found.start
        ]
        self.ledger.reserve(found.placement, job.request, found.start, ended, job.queue)

    def _soon(self, job: Job, victims: Sequence[Victim]) -> View:
        """What a Job sees that starts when all who leave, and these, have left."""
        return self.ledger.view(Column.SOON, self.end(job, self._start(job, victims)))

    def _start(self, job: Job, victims: Sequence[Victim]) -> Seconds:
        """When a promise to the Job is kept at the latest."""
        now = self.snapshot.now
        graces = [now + v.job.terms.grace for v in victims if v.told is Told.NOT_YET]
        known = job.reserved.start if job.reserved and job.reserved.promised else self._left_by
        return max([now, known, *graces])

    def _admit(self, job: Job) -> None:
        """It counts against limits, which may bar others now that lacked only GPUs before."""
        self.limits.admit(job)
        quotas, share = self.ledger.quotas, self.limits.share_one
        if self.limits.groups(job) or quotas is not None:
            self._vain = {
                equal: it
                for equal, it in self._vain.items()
                if not (share(job, it) or (quotas is not None and quotas.kin(job, it)))
            }

    def _remember(self, job: Job) -> None:
        if (equal := self._equal(job)) is not None:
            self._vain[equal] = job

    def _try_again(self) -> None:
        """Something was given back: who failed may not fail now."""
        self._failed.clear()
        self._vain.clear()

    def _equal(self, job: Job) -> Equal | None:
        """Equal for those of whom one starts only where and when any other would; ``None`` for
        one that has no equals."""
        past = job.served or job.extended or job.gpu_seconds or job.avoid
        if job.kind is Kind.SESSION or past or job.reserved is not None:
            return None
        if job.id in self.snapshot.barred or job.id in self._awaited:
            return None
        return job.class_name, job.queue, self.limits.groups(job), job.request

    def _is_short(self, job: Job) -> bool:
        """Its quota does not allow it, even when all have left who leave."""
        quotas = self.ledger.quotas
        return quotas is not None and not quotas.wishes(job, SOON)

    def _may_take(self, job: Job) -> bool:
        """True if others may have to leave for it who use the same quota."""
        quotas = self.ledger.quotas
        return quotas is not None and any(quotas.kin(job, v.job) for v in self._victims(job))

    def _failure(self, step: str, job: Job, view: View) -> Failure | None:
        """How an equal Request failed at that step, if nothing was given back since."""
        return self._failed.get((step, self._alike(step, job), shape(job.request), view))

    def _fail(self, step: str, job: Job, view: View, how: Failure = Failure.NO_ROOM) -> None:
        if Ask.of(job, self.packing).plain:
            self._failed[step, self._alike(step, job), shape(job.request), view] = how

    def _alike(self, step: str, job: Job) -> Hashable:
        """Equal for Jobs that fare alike in that step, if their Requests and views are equal."""
        quotas = self.ledger.quotas
        queue = job.queue if quotas is not None and quotas.governs(job.queue) else ""
        return self.prey.hunter(job) if step == "way" else job.kind, queue
