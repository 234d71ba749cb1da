# SPDX-License-Identifier: BSD-3-Clause
"""The rules of the house as functions: sources in, findings out (see docs/architecture.md)."""

from __future__ import annotations
