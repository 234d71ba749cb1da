# SPDX-License-Identifier: BSD-3-Clause
"""Devices against real processes: nothing is patched, holders are killed with -9."""

from __future__ import annotations
