# SPDX-License-Identifier: BSD-3-Clause
"""What the quotas of a policy leave to the queues of one cycle, in all columns.

Placements use GPUs, and their queue's quota besides: to the Ledger both are Amounts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple

from . import cohorts
from .cohorts import Account, Cohorts
from .columns import NOWHERE, SOON, Amount, Column, View
from .model import GPU_MILLI, Job, Placement, Policy, Request, Seconds, Snapshot, serves


class Allowance(Amount):
    """What a queue may still have of one row, by its quota and those of its cohort. It may be
    less than nothing."""

    __slots__ = ("account", "kin", "row")

    def __init__(self, row: str, account: Account, kin: list[Allowance]) -> None:
        self.row = row
        self.account = account
        self.home = NOWHERE
        self.kin = kin
        """Those of all queues of the tree, this one included."""

    @property
    def now(self) -> int:  # type: ignore[override]
        """See ``Amount``."""
        return self.account.available(cohorts.NOW)

    @property
    def soon(self) -> int:  # type: ignore[override]
        """See ``Amount``."""
        return self.account.available(cohorts.SOON)

    @property
    def then(self) -> int:  # type: ignore[override]
        """See ``Amount``."""
        return self.account.available(cohorts.THEN)

    @property
    def start(self) -> Seconds:  # type: ignore[override]
        """See ``Amount``."""
        return self.account.root.start

    def move(self, now: int, soon: int, then: int) -> None:
        """See ``Amount.move``."""
        for column, milli in enumerate((now, soon, then)):
            if milli:
                self.account.add(column, -milli)

    def reserve(self, need: int, start: Seconds, back: Mapping[Amount, int]) -> None:
        """See ``Amount.reserve``."""
        root = self.account.root
        for each in self.kin:
            _, soon, then = each.account.used
            used = soon - back.get(each, 0)
            each.account.add(cohorts.THEN, (max(used, then) if root.claims else used) - then)
        self.account.add(cohorts.THEN, need)
        root.start = min(root.start, start)
        root.claims += 1

    def release(self) -> None:
        """See ``Amount.release``."""
        root = self.account.root
        root.claims -= 1
        if not root.claims:
            root.start = inf


def lending(snapshot: Snapshot, policy: Policy) -> Lending | None:
    """The quotas of a policy, not used yet; ``None`` if it has none."""
    quotas = Cohorts(policy)
    return Lending(snapshot, quotas) if any(quotas.queues) else None


class Lending:
    """The quotas of one cycle."""

    def __init__(self, snapshot: Snapshot, quotas: Cohorts) -> None:
        self._quotas = quotas
        self._allowances = _allowances(quotas)
        nodes = snapshot.nodes.values()
        self._flavors = {
            (n.name, device.uuid): device.flavor for n in nodes for device in n.devices
        }
        """Of every device, usable or not."""
        usable = [d for node in nodes if node.usable for d in node.devices if d.usable]
        self._brands = tuple(dict.fromkeys(device.brand for device in usable))
        self._ways: dict[tuple[str, Request], tuple[_Way, ...]] = {}

    def governs(self, queue: str) -> bool:
        """False for a queue that may have all there is."""
        return queue in self._allowances

    def account(self, queue: str, row: str) -> Account:
        """Of a queue that is governed."""
        return self._quotas.account(queue, row)

    def kin(self, one: Job, other: Job) -> bool:
        """True if they need quota of one tree."""
        governed = one.queue in self._allowances
        return governed and other.queue in self._quotas.relatives(one.queue)

    def amounts(
        self, placement: Placement, request: Request | None, queue: str
    ) -> Iterator[tuple[Amount, int]]:
        """What a Placement of that queue uses of its quota."""
        if queue not in self._allowances:
            return
        # A machine may be unknown just after a start: of its flavor is what was asked for.
        usual = request.flavors[0] if request is not None and request.flavors else cohorts.ANY
        rows: dict[str, int] = {}
        for share in placement:
            flavor = self._flavors.get((share.node, share.device), usual)
            row = self._quotas.row(queue, flavor)
            rows[row] = rows.get(row, 0) + share.milli
        for row, milli in rows.items():
            yield self._allowances[queue][row], milli

    def wishes(self, job: Job, view: View) -> tuple[Request, ...]:
        """What the Job may ask for: its Request on the flavors of one row, first of those of
        which its queue still owns enough, then of those of which it may borrow enough. Empty =
        its quota does not allow it in that view.

        One row for the whole Job, so that what is reserved of a row is all that it needs."""
        if job.queue not in self._allowances:
            return (job.request,)
        own: list[Request] = []
        lent: list[Request] = []
        for way in self._ways_of(job):
            if way.allowance.free(view) >= way.need:
                wished = own if _unused(way.allowance.account, view) >= way.need else lent
                wished.append(way.request)
        return (*own, *lent)

    def inside(self, job: Job, view: View = SOON) -> bool:
        """True if its queue, when it starts, uses no more than it owns."""
        return job.queue not in self._allowances or bool(self.owned(job, view))

    def owned(self, job: Job, view: View = SOON) -> tuple[str, ...]:
        """Rows of which its queue still owns enough for the Job; empty where it owns nothing."""
        if job.queue not in self._allowances:
            return ()
        return tuple(
            way.allowance.row
            for way in self._ways_of(job)
            if _unused(way.allowance.account, view) >= way.need
        )

    def lacks(self, amount: Amount) -> int:
        """What its queue uses of one of ``amounts`` beyond what it owns, when all have left who
        leave; below 0 where it owns more."""
        assert isinstance(amount, Allowance)
        return -amount.account.unused(cohorts.SOON)

    def uses(self, job: Job) -> Iterator[tuple[str, int, int]]:
        """Of a Lease: (row, milli that it uses of it, milli that its queue owns of it)."""
        assert job.lease is not None, job
        for amount, milli in self.amounts(job.lease.placement, job.request, job.queue):
            assert isinstance(amount, Allowance)
            yield amount.row, milli, amount.account.nominal

    def words(self, job: Job) -> str:
        """How much of its quota is used, and who borrows of it, in a sentence."""
        ways = self._ways_of(job) or (
            _Way(self._allowances[job.queue][cohorts.ANY], job.request, 0),
        )
        way = max(ways, key=lambda way: way.allowance.soon)
        row, account, need = way.allowance.row, way.allowance.account, way.need
        used, of = account.used[cohorts.SOON], "" if row == cohorts.ANY else f" {row}"
        text = f"queue {job.queue} uses {used / GPU_MILLI:g} of its {_gpus(account.nominal, of)}"
        borrowed = [
            f"{other} borrows {-left / GPU_MILLI:g}"
            for other in self._quotas.relatives(job.queue)
            if (left := self._quotas.account(other, row).unused(cohorts.SOON)) < 0
            and other != job.queue
        ]
        if account.parent is not None:
            more = max(0, account.available(cohorts.SOON))
            text += f" and can have {more / GPU_MILLI:g} more"
        return f"{text}; this needs {need / GPU_MILLI:g}" + "".join(f"; {b}" for b in borrowed)

    def _ways_of(self, job: Job) -> tuple[_Way, ...]:
        """One for each row that has flavors which serve the Job. Equal Jobs share them: they
        are asked for again and again while the quota is used up."""
        key = job.queue, job.request
        if (known := self._ways.get(key)) is None:
            known = self._ways[key] = tuple(self._ways_to(*key))
        return known

    def _ways_to(self, queue: str, request: Request) -> Iterator[_Way]:
        rows: dict[str, list[str]] = {}
        serving = (brand.flavor for brand in self._brands if serves(request, brand))
        for flavor in request.flavors or dict.fromkeys(serving):
            rows.setdefault(self._quotas.row(queue, flavor), []).append(flavor)
        for row, flavors in rows.items():
            need = request.most_milli(b.memory_mib for b in self._brands if b.flavor in flavors)
            part = request if len(rows) == 1 else replace(request, flavors=tuple(flavors))
            yield _Way(self._allowances[queue][row], part, need)


class _Way(NamedTuple):
    """How a Request can be served from one row of its queue's quota."""

    allowance: Allowance
    request: Request
    """On the flavors of the row alone."""
    need: int
    """The most milli that it can take on them."""


def _allowances(quotas: Cohorts) -> dict[str, dict[str, Allowance]]:
    """By queue and row."""
    kin: dict[tuple[Account, str], list[Allowance]] = {}
    found: dict[str, dict[str, Allowance]] = {}
    for queue in quotas.queues:
        for row in quotas.rows(queue):
            account = quotas.account(queue, row)
            those = kin.setdefault((account.root, row), [])
            those.append(Allowance(row, account, those))
            found.setdefault(queue, {})[row] = those[-1]
    return found


def _gpus(milli: int, flavor: str) -> str:
    return f"{milli / GPU_MILLI:g}{flavor} GPU" + ("" if milli == GPU_MILLI else "s")


def _unused(account: Account, view: View) -> int:
    """What is left of its own quota in that view."""
    now, soon = account.unused(cohorts.NOW), account.unused(cohorts.SOON)
    if view.column is Column.BOTH:
        return min(now, soon)
    return now if view.column is Column.NOW else soon
