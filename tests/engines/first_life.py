# SPDX-License-Identifier: BSD-3-Clause
"""A broker's first life: starts one job in a process that the test then kills by SIGKILL.

::

    python -m tests.engines.first_life ROOT NODES [argv | CODE]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from .conftest import LocalGround
from .contract import KEY


async def main() -> None:
    """Start it, say so, wait to be killed."""
    ground, nodes = LocalGround(Path(sys.argv[1])), int(sys.argv[2])
    launch = ground.gang(sys.argv[3]) if nodes > 1 else ground.launch(*sys.argv[3:])
    await ground.engine().start(KEY, launch)
    sys.stdout.write("started\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
