# SPDX-License-Identifier: BSD-3-Clause
"""The pure core: nouns, the state machine and the scheduler.

Standard library only; no clock, no randomness, no logging, no async. ``now`` is
always an argument, in seconds since the epoch (UTC).
"""
