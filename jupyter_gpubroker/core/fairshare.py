# SPDX-License-Identifier: BSD-3-Clause
"""Fair Tree: whose turn it is, by shares and what was used lately.

The algorithm of Slurm's ``priority/multifactor`` plugin of that name, over the tree
queue → user. Among siblings the one with the greatest *level factor* comes first:
its part of the shares over its part of the usage, so nobody's turn depends on what
the users of another queue do to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from math import inf
from typing import TypeVar

from .model import Queue

Account = tuple[str, str]
"""(queue, user)"""
Name = TypeVar("Name", str, Account)


def fair_tree(usage: Mapping[Account, float], queues: Mapping[str, Queue]) -> dict[Account, int]:
    """The rank of every account in ``usage``, 0 = its turn is next; equals share a rank.

    ``usage`` is decayed milli-GPU-seconds, 0 for those who only wait. A queue or user
    that the policy does not name has one share."""
    level, below = level_factors(usage, queues)
    members: dict[str, dict[Account, float]] = {}
    for account, factor in below.items():
        members.setdefault(account[0], {})[account] = factor
    ranks: dict[Account, int] = {}
    for _, names in _best_first(level):
        # Queues that are equal are one: their users are compared with each other.
        merged = {account: factor for name in names for account, factor in members[name].items()}
        for _, equals in _best_first(merged):
            rank = len(ranks)
            ranks |= dict.fromkeys(equals, rank)
    return ranks


def level_factors(
    usage: Mapping[Account, float], queues: Mapping[str, Queue]
) -> tuple[dict[str, float], dict[Account, float]]:
    """Of queues among all, and of users among those of their queue."""
    members: dict[str, list[Account]] = {}
    for account in sorted(usage):
        members.setdefault(account[0], []).append(account)
    used = {name: sum(usage[account] for account in those) for name, those in members.items()}
    level = _factors(used, {name: _shares(queues, name) for name in members})
    below: dict[Account, float] = {}
    for those in members.values():
        amounts = {account: usage[account] for account in those}
        below |= _factors(amounts, {account: _shares(queues, *account) for account in those})
    return level, below


def _shares(queues: Mapping[str, Queue], name: str, user: str | None = None) -> int:
    queue = queues.get(name)
    if queue is None:
        return 1
    return queue.shares if user is None else queue.user_shares.get(user, 1)


def _factors(usage: Mapping[Name, float], shares: Mapping[Name, int]) -> dict[Name, float]:
    """Level factors of siblings; infinite without usage."""
    all_used, all_shares = sum(usage.values()), sum(shares.values())
    return {
        name: (shares[name] / all_shares) / (used / all_used) if used > 0 else inf
        for name, used in usage.items()
    }


def _best_first(factors: Mapping[Name, float]) -> Iterable[tuple[float, list[Name]]]:
    """Groups of equal factors, the greatest first."""
    names = sorted(factors, key=lambda name: (-factors[name], name))
    for factor, equals in groupby(names, key=lambda name: factors[name]):
        yield factor, list(equals)
