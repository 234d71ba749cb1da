# SPDX-License-Identifier: BSD-3-Clause
"""``python -m jupyter_gpubroker.app``: the command line of exactly this interpreter."""

from __future__ import annotations

from . import main

if __name__ == "__main__":
    main()
