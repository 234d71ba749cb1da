# SPDX-License-Identifier: BSD-3-Clause
"""What runs in the user's interpreter: the folder that goes on PYTHONPATH."""

from __future__ import annotations

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
"""With this folder on PYTHONPATH, ``import gpubroker`` works in any Python >= 3.9."""
