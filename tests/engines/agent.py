# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for ``python -m torch.distributed.run`` that starts in milliseconds.

It takes the same options and does what matters to an engine: ranks in sessions of their
own, SIGTERM passed on, all ranks down when one fails, exit code 1 unless all gave 0.
Placed as an executable whose first line names a Python, it serves as ``Launch.python``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import FrameType


def main() -> int:
    """Run the ranks of one node."""
    options = dict(arg[2:].partition("=")[::2] for arg in sys.argv[3:] if arg.startswith("--"))
    script = next(i for i, arg in enumerate(sys.argv) if arg.endswith("rank.py"))
    count, nodes = int(options["nproc-per-node"]), int(options["nnodes"])
    node = 0 if options["local-addr"] == "127.0.0.1" else int(options["local-addr"][-3:]) - 100
    wake = threading.Event()
    told = []

    def leave(signum: int, _: FrameType | None) -> None:
        told.append(signum)
        wake.set()

    signal.signal(signal.SIGTERM, leave)
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv[script:]],
            env={
                **os.environ,
                "RANK": str(node * count + local),
                "LOCAL_RANK": str(local),
                "GROUP_RANK": str(node),
                "WORLD_SIZE": str(nodes * count),
            },
            start_new_session=True,
        )
        for local in range(count)
    ]
    leaving = False
    while any(rank.poll() is None for rank in ranks):
        if not leaving and (told or any(rank.poll() for rank in ranks)):
            leaving = True
            for rank in ranks:
                _pass_on(rank)
        wake.wait(0.02)
        wake.clear()
    return 1 if leaving or any(rank.returncode for rank in ranks) else 0


def _pass_on(rank: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(rank.pid, signal.SIGTERM)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main())
