# SPDX-License-Identifier: BSD-3-Clause
"""The local engine: the contract, as the broker's own account and as a user's."""

from __future__ import annotations

from .contract import EngineContract


class TestAsSelf(EngineContract):
    """``run_as: self``."""
