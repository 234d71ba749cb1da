# SPDX-License-Identifier: BSD-3-Clause
"""The queue's side of your program.

In a training script::

    import gpubroker

    for step in range(start, steps):
        train(step)
        if step % 100 == 0 or gpubroker.should_stop():
            save(step)
            gpubroker.checkpointed(step)
        if gpubroker.should_stop():
            raise SystemExit(75)  # run me again

Outside a job all three do nothing, so the script runs unchanged on a laptop. In a
notebook the ``%gpu_*`` magics are there without ``%load_ext``.
"""

from __future__ import annotations

import logging

from .batch import checkpointed, complete, should_stop

__all__ = ["checkpointed", "complete", "load_ipython_extension", "should_stop"]


def load_ipython_extension(shell: object) -> None:
    """Add the magics and the cell gate to this IPython. A failure is a line in the log."""
    try:
        # Only here: a training script imports this package without IPython.
        from .kernel import load

        load(shell)
    except Exception:
        logging.getLogger(__name__).exception("the %gpu_ magics could not be loaded")
