# SPDX-License-Identifier: BSD-3-Clause
"""Requests that can never run are refused with the nearest that can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.core.feasible import possible
from jupyter_gpubroker.core.model import Device, Node, Refusal, Request

from .worlds import ask, node, policy

TWO = (node("node1", 4), node("node2", 4))
MIXED = (
    node("node1", 4, flavor="h100", cpu_milli=64_000, host_memory_mib=100_000),
    node("node2", 8, flavor="a100", cpu_milli=32_000, host_memory_mib=200_000, memory_mib=40_000),
)


def refusal(request: Request, nodes: tuple[Node, ...], class_name: str = "batch") -> str:
    with pytest.raises(Refusal) as refused:
        possible(request, nodes, policy().classes[class_name])
    return str(refused.value)


@pytest.mark.parametrize(
    ("request_", "nodes", "sentence"),
    [
        (
            ask(9),
            TWO,
            "gpus: no node has 9 GPUs (nearest that can run: 2 × 4 GPUs, or 4 GPUs on 1 node)",
        ),
        (
            ask(6),
            TWO,
            "gpus: no node has 6 GPUs (nearest that can run: 2 × 3 GPUs, or 4 GPUs on 1 node)",
        ),
        (ask(5), TWO[:1], "gpus: no node has 5 GPUs (nearest that can run: 4 GPUs on 1 node)"),
        (
            ask(2),
            (node("n", 1),),
            "gpus: no node has 2 GPUs (nearest that can run: 1 GPU on 1 node)",
        ),
        (
            ask(5, flavors=("h100",)),
            MIXED,
            "gpus: no node has 5 GPUs of flavor h100 (nearest that can run: 4 GPUs on 1 node)",
        ),
        (
            ask(4.5),
            TWO,
            "gpus: no node has 4 GPUs and one more to share (at most 3 GPUs beside the share)",
        ),
        (ask(1), (node("n", 0),), "gpus: no node has a GPU (ask for none)"),
        (
            ask(3, nodes=3),
            TWO,
            "nodes: only 2 nodes can take 3 GPUs, got 3 (nearest that can run: 2 × 3 GPUs)",
        ),
        (
            ask(5, nodes=2),
            MIXED,
            "nodes: only 1 node can take 5 GPUs, got 2 (nearest that can run: 5 GPUs)",
        ),
        (
            ask(1, flavors=("h100", "l4")),
            MIXED,
            "flavors: no GPU is of flavor l4 (there are a100, h100)",
        ),
        (
            ask(1, flavors=("l4",)),
            (node("n", 0),),
            "flavors: no GPU is of flavor l4 (no node has a GPU)",
        ),
        (
            Request(memory_mib=90_000),
            MIXED,
            "memory_mib: no GPU has 90000 MiB, the largest has 81920 MiB"
            " (ask for at most 81920 MiB, or for whole GPUs)",
        ),
        (
            Request(gpus=5, memory_mib=50_000),
            MIXED,
            "memory_mib: no node has 5 GPUs + 50000 MiB of a GPU together"
            " (ask for less memory, or fewer GPUs beside it)",
        ),
        (
            ask(1, cpu_milli=64_500),
            MIXED,
            "cpu_milli: no node with 1 GPU has 64.5 CPUs (ask for at most 64)",
        ),
        (
            ask(8, cpu_milli=33_000),
            MIXED,
            "cpu_milli: no node with 8 GPUs has 33 CPUs (ask for at most 32)",
        ),
        (
            ask(1, cpu_milli=50_000, host_memory_mib=150_000),
            MIXED,
            "host_memory_mib: no node with 1 GPU has 150000 MiB of memory beside so many CPUs"
            " (ask for at most 100000 MiB)",
        ),
        (
            ask(1, time_limit=8 * 86400.0),
            TWO,
            "time_limit: class batch allows at most 7 d, got 8 d (ask for 7 d or less)",
        ),
        (
            ask(1, time_limit=3.6e12),
            TWO,
            "time_limit: class batch allows at most 7 d, got 1e+09 h (ask for 7 d or less)",
        ),
    ],
)
def test_what_can_never_run_is_refused_with_the_nearest_that_can(
    request_: Request, nodes: tuple[Node, ...], sentence: str
) -> None:
    assert refusal(request_, nodes) == sentence


def test_a_session_is_offered_no_gang() -> None:
    assert refusal(ask(6), TWO, "interactive") == (
        "gpus: no node has 6 GPUs (nearest that can run: 4 GPUs on 1 node)"
    )
    assert refusal(ask(1, nodes=2), TWO, "interactive") == (
        "nodes: a session runs on one node (ask for nodes = 1)"
    )
    assert "class interactive allows at most 8 h, got 9 h" in refusal(
        ask(1, time_limit=9 * 3600.0), TWO, "interactive"
    )


def test_a_gang_must_fit_on_the_nodes_of_one_engine() -> None:
    split = (TWO[0], replace(TWO[1], engine="slurm"))
    assert "only 1 node can take 4 GPUs" in refusal(ask(4, nodes=2), split)


@pytest.mark.parametrize(
    "request_",
    [
        ask(0.5),
        ask(4),
        ask(3.5),
        ask(4, nodes=2),
        Request(memory_mib=80 * 1024),
        ask(1, cpu_milli=10**6, host_memory_mib=10**6),
        ask(1, time_limit=7 * 86400.0),
        replace(ask(1), time_limit=None),
    ],
)
def test_what_can_run_passes(request_: Request) -> None:
    possible(request_, TWO, policy().classes["batch"])


def test_it_is_judged_on_what_there_is_not_on_what_is_usable_now() -> None:
    sick = Device("node1/0", "h100", 1000, usable=False)
    away = (replace(TWO[0], devices=(sick,), usable=False),)
    possible(ask(1), away, policy().classes["batch"])


def test_while_no_node_is_known_only_the_time_is_judged() -> None:
    possible(ask(1000), (), policy().classes["batch"])
    assert "allows at most" in refusal(ask(1, time_limit=1e9), ())
