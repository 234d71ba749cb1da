# SPDX-License-Identifier: BSD-3-Clause
"""A mapping that is made when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class OnDemand(Mapping[K, V]):
    """What ``make`` returns, called at the first look; it depends on nothing that changes."""

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[], Mapping[K, V]]) -> None:
        self._make: Callable[[], Mapping[K, V]] | None = make
        self._found: Mapping[K, V] = {}

    def _all(self) -> Mapping[K, V]:
        if self._make is not None:
            self._found, self._make = self._make(), None
        return self._found

    def __getitem__(self, key: K) -> V:
        return self._all()[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(dict(self._all()))
