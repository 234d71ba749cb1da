# SPDX-License-Identifier: BSD-3-Clause
"""Engines against their contract."""

import pytest

pytest.register_assert_rewrite("tests.engines.contract")
