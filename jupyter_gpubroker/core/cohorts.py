# SPDX-License-Identifier: BSD-3-Clause
"""Quotas in a cohort tree: who may have how much, and lend or borrow how much of it.

The arithmetic of Kueue, as one recursive pair: ``Account.available`` asks upwards what is
left, ``Account.add`` tells upwards what was taken. A member uses first what it keeps for
itself; what it uses beyond that it takes from its parent, where it shares what all have
lent. Every flavor that a quota of the tree names is a *row* with accounts of its own, and
the row ``*`` holds all other flavors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from .model import Cohort, Policy, Queue, Quota

ANY = "*"
"""The row of all flavors that no quota of the tree names."""
COLUMNS = 3
NOW, SOON, THEN = range(COLUMNS)
"""Indexes of what is used: at this instant; when all have left who leave; at the start of
the Reservation that there is, if any."""

Row = str
_NOTHING = Quota(0)


class Account:
    """What one queue or cohort has of one row, and what it uses. All amounts are milli."""

    __slots__ = ("borrow", "claims", "kept", "nominal", "owned", "parent", "start", "used")

    def __init__(self, quota: Quota, parent: Account | None) -> None:
        self.nominal = quota.nominal
        self.borrow = quota.borrow
        """The most above what it owns; ``None`` = as much as the parent has."""
        self.parent = parent
        self.owned = quota.nominal
        """Its own and what its members lend."""
        self.kept = 0
        """The part of it that is never lent."""
        self.used = [0] * COLUMNS
        """By column. Of a cohort: what its members use beyond what they keep."""
        self.start = inf
        """At a root: when ``THEN`` is; infinite while nobody has a Reservation."""
        self.claims = 0
        """At a root: how many have one."""

    @property
    def root(self) -> Account:
        """The account that has no parent."""
        return self if self.parent is None else self.parent.root

    def available(self, column: int) -> int:
        """What can be used besides; below 0 where more is used than is allowed by now."""
        used = self.used[column]
        if self.parent is None:
            return self.owned - used
        above = self.parent.available(column)
        if self.borrow is not None:
            above = min(above, self.owned + self.borrow - max(self.kept, used))
        kept = max(0, self.kept - used)  # it is there whatever the others use
        return kept + max(0, above) if kept else above

    def add(self, column: int, milli: int) -> None:
        """So much more is used, or less if it is negative: what goes beyond the part that is
        kept is used of the parent's."""
        before = max(self.kept, self.used[column])
        self.used[column] += milli
        beyond = max(self.kept, self.used[column]) - before
        if beyond and self.parent is not None:
            self.parent.add(column, beyond)

    @property
    def most(self) -> int:
        """What it could have if nobody else used anything."""
        if self.parent is None:
            return self.owned
        most = self.kept + self.parent.most
        return most if self.borrow is None else min(most, self.owned + self.borrow)

    def unused(self, column: int) -> int:
        """What is left of its own quota; below 0 while it borrows."""
        return self.nominal - self.used[column]


@dataclass(frozen=True, slots=True)
class _Tree:
    """Members below one root."""

    rows: tuple[Row, ...]
    """Those that a quota names, and ``ANY``."""
    queues: tuple[str, ...]
    """By name."""


class Cohorts:
    """The accounts of every queue that has a quota or is in a cohort."""

    def __init__(self, policy: Policy) -> None:
        self._queues = {name: policy.queues[name] for name in sorted(policy.queues)}
        self._cohorts = policy.cohorts
        self._trees: dict[str, _Tree] = {}
        """By queue."""
        self._accounts: dict[tuple[str, Row], Account] = {}
        members: dict[str, list[str]] = {}
        for name, queue in self._queues.items():
            if queue.cohort is not None:
                members.setdefault(self._root(queue.cohort), []).append(name)
            elif queue.quota:
                self._plant([name], ())
        for root, queues in members.items():
            below = [name for name in sorted(self._cohorts) if self._root(name) == root]
            self._plant(queues, below)

    @property
    def queues(self) -> Iterable[str]:
        """Those that have a quota or are in a cohort; the others may have all there is."""
        return self._trees

    def row(self, queue: str, flavor: str) -> Row:
        """The row that a flavor is in, for a queue that is governed."""
        return flavor if flavor in self._trees[queue].rows else ANY

    def account(self, queue: str, row: Row) -> Account:
        """The account of a queue that is governed."""
        return self._accounts[queue, row]

    def rows(self, queue: str) -> tuple[Row, ...]:
        """All rows of a queue that is governed."""
        return self._trees[queue].rows

    def relatives(self, queue: str) -> tuple[str, ...]:
        """The queues of its tree, itself included."""
        return self._trees[queue].queues

    def share(self, queue: str, column: int = SOON) -> float:
        """Kueue's dominant resource share: what it borrows of a row, over what its cohort could
        lend, over its weight (``shares``); the largest of all rows. 0 = it borrows nothing."""
        most = 0.0
        for row in self.rows(queue):
            account = self._accounts[queue, row]
            if account.parent is not None and account.unused(column) < 0:
                lendable = account.parent.most
                part = -account.unused(column) / lendable if lendable else inf
                most = max(most, part)
        return most / self._queues[queue].shares

    def _root(self, cohort: str) -> str:
        parent = self._cohorts[cohort].parent
        return cohort if parent is None else self._root(parent)

    def _plant(self, queues: Sequence[str], cohorts: Sequence[str]) -> None:
        """The accounts of one tree, parents first."""
        below = sorted(cohorts, key=self._depth)
        members: list[Cohort | Queue] = [self._cohorts[name] for name in below]
        members += [self._queues[name] for name in queues]
        named = sorted({row for member in members for row in member.quota})
        rows = tuple(dict.fromkeys([*named, ANY]))
        self._trees |= dict.fromkeys(queues, _Tree(rows, tuple(queues)))
        for row in rows:
            accounts: list[tuple[Account, Quota]] = []
            above: dict[str | None, Account] = {}
            for member in members:
                quota = member.quota.get(row, _NOTHING)
                if isinstance(member, Cohort):
                    account = above[member.name] = Account(quota, above.get(member.parent))
                else:
                    account = Account(quota, above.get(member.cohort))
                    self._accounts[member.name, row] = account
                accounts.append((account, quota))
            for account, quota in reversed(accounts):
                _lend(account, quota)

    def _depth(self, cohort: str) -> tuple[int, str]:
        parent = self._cohorts[cohort].parent
        return 0 if parent is None else 1 + self._depth(parent)[0], cohort


def _lend(account: Account, quota: Quota) -> None:
    """Give the parent what may be lent; the members of the account have done so before."""
    if account.parent is not None:
        lent = account.owned if quota.lend is None else min(quota.lend, account.owned)
        account.kept = account.owned - lent
        account.parent.owned += lent
