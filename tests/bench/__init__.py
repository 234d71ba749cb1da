# SPDX-License-Identifier: BSD-3-Clause
"""``make bench``: the figures of docs/benchmarks.md, measured on this machine."""

from __future__ import annotations
