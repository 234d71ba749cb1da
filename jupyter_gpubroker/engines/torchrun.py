# SPDX-License-Identifier: BSD-3-Clause
"""The torchrun command of each node: fixed world, no restarts of its own, c10d rendezvous."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ..core.model import Key

_RANK = Path(__file__).with_name("rank.py")
_PORTS = range(20000, 32768)
"""Below the range from which systems draw the ports of outgoing connections."""
_TRIES = 200

ENVIRONMENT: Mapping[str, str] = {
    # What torchrun would set, without its warning.
    "OMP_NUM_THREADS": "1",
    # After SIGTERM the broker alone decides when time is up; torchrun's own 30 s would cut
    # a longer grace short.
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "86400",
}
"""Defaults of every torchrun launch; a job's own settings win."""

ONE_MACHINE: Mapping[str, str] = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Defaults where all nodes are this machine: its host name may not even resolve."""


def command(
    key: Key, argv: Sequence[str], *, node: int, counts: Sequence[int], port: int
) -> tuple[str, ...]:
    """What follows the interpreter on the node of rank ``node``.

    ``counts`` are processes per node; ``argv`` starts with ``rank.py``'s folder."""
    # c10d gives ranks in the order of the agents' addresses, as text. The whole of 127/8 is
    # this machine, so each node gets an address of its own and ranks follow the placement.
    address = f"127.1.{100 + node // 100}.{100 + node % 100}" if node else "127.0.0.1"
    return (
        "-m",
        "torch.distributed.run",
        f"--nnodes={len(counts)}",
        f"--nproc-per-node={counts[node]}",
        "--max-restarts=0",
        "--rdzv-backend=c10d",
        f"--rdzv-id={key.job}-{key.attempt}",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        f"--rdzv-conf=is_host={'false' if node else 'true'}",
        f"--local-addr={address}",
        str(_RANK),
        *argv,
    )


def draw_port(taken: Collection[int]) -> int:
    """A TCP port on which nobody listens now, and none of ``taken``; OSError if none is found."""
    draw = random.SystemRandom()
    for _ in range(_TRIES):
        port = draw.choice(_PORTS)
        if port not in taken and _free(port):
            return port
    raise OSError(f"no free TCP port found in {_PORTS.start}..{_PORTS.stop - 1}")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
