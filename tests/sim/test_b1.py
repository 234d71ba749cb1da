# SPDX-License-Identifier: BSD-3-Clause
"""B1 on small, made up clusters: what it reads, what it counts, and who fills best."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from jupyter_gpubroker.core.ledger import Ledger
from jupyter_gpubroker.core.model import (
    Device,
    Job,
    Kind,
    Node,
    Refusal,
    Request,
    Snapshot,
    nodes_of,
)
from jupyter_gpubroker.sim.benchmarks import b1, published

NODES = ["sn,cpu_milli,memory_mib,gpu,model"] + [
    f"node-{number},{cpus}000,200000,{gpus},{model}"
    for number, (cpus, gpus, model) in enumerate(
        [(48, 4, "big"), (24, 2, "small"), (96, 8, "big"), (16, 2, "small")] * 10
    )
]
SHAPES = (
    [(3, 1, 700, ""), (2, 1, 300, ""), (6, 1, 500, ""), (3, 1, 230, ""), (1, 1, 450, "")] * 4
    + [(11, 1, 1000, "")] * 6
    + [(8, 1, 1000, "big|small"), (20, 2, 1000, "big"), (12, 0, 0, ""), (40, 4, 1000, "")]
)
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos"


def pods(count: int = 200) -> list[str]:
    draw = random.Random(5)
    return [
        f"pod-{number:04},{cpus}000,1000,{gpus},{milli},{spec},LS"
        for number in range(count)
        for cpus, gpus, milli, spec in [draw.choice(SHAPES)]
    ]


def machines() -> dict[str, Node]:
    return b1.nodes("\n".join(NODES), "nodes.csv")


def requests(lines: list[str]) -> list[Request]:
    return b1.pods("\n".join([HEAD, *lines]), "pods.csv")


def test_the_fragmentation_rule_fills_a_cluster_better_than_what_was_published() -> None:
    files = {"nodes.csv": NODES, **{f"pods_{name}.csv": [HEAD, *pods()] for name in b1.WORKLOADS}}
    told: list[str] = []
    result = b1.run(Path("x"), lambda path: "\n".join(files[Path(path).name]), told.append)
    assert result["id"] == "b1"
    assert len(told) == 4
    means = {name: each["mean"] for name, each in result["workloads"]["default"].items()}
    assert result["value"] == result["gpushare100"] == means["ours"]
    assert means["ours"] > means["fgd"]
    assert means["ours"] > means["best-fit"]
    assert set(result["calibration"]) == {"best-fit", "fgd"}
    assert not result["calibrated"]  # this is not the trace
    assert not set(result["seeds"]) & set(result["tuned_on"])


def test_the_order_of_the_lines_and_the_names_of_the_nodes_change_little() -> None:
    some = requests(pods())
    assert requests(pods()[::-1]) == some
    line = b1.arrivals(some, 200_000, 3)
    assert line == b1.arrivals(some, 200_000, 3) != b1.arrivals(some, 200_000, 4)
    assert sum(request.gpus * 1000 + request.gpu_milli for request in line) >= 200_000
    shown = b1.fill(machines(), line, b1.ours(some)).allocated
    other = dict(zip(machines(), reversed(machines().values()), strict=True))
    assert abs(b1.fill(other, line, b1.ours(some)).allocated - shown) < 5


def test_shares_whole_gpus_and_cpus_alone_are_read() -> None:
    lines = ["b,2000,7,4,1000,T4|P100,x", "a,1000,5,1,460,,x", "c,3000,9,0,0,,x"]
    assert requests(lines) == [
        Request(gpu_milli=460, cpu_milli=1000, host_memory_mib=5),
        Request(gpus=4, cpu_milli=2000, host_memory_mib=7, flavors=("T4", "P100")),
        Request(cpu_milli=3000, host_memory_mib=9),
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,1,1,1,-5,,x"], r"pods.csv line 2: gpu_milli: -5 is out of range"),
        (["a,1,1,1,1000,,x", "b,1,1"], r"pods.csv line 3: columns"),
        (["a,0,1,0,0,,x"], r"pods.csv line 2: gpus: must be at least 1"),
        (["a,1,1,0,0,,x"], r"pods.csv: asks for no GPU"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_line_and_field(
    lines: list[str], message: str
) -> None:
    with pytest.raises(Refusal, match=message):
        requests(lines)
    with pytest.raises(Refusal, match=r"nodes.csv: has no GPU"):
        b1.nodes(NODES[0] + "\na,1,1,0,T4\n", "nodes.csv")


def test_fgd_tells_nodes_of_different_models_apart_though_the_same_is_free_on_both() -> None:
    machines = {
        name: Node(name, "trace", "b", (Device(f"{name}/0", model, 1024),), 9000, 9000)
        for name, model in (("n1", "wanted"), ("n2", "other"))
    }
    wanted = Request(gpus=1, flavors=("wanted",))
    choose = published.fgd(b1.counts([wanted] * 9 + [Request(gpus=1)]), 100)
    ledger = Ledger(Snapshot(0.0, machines, {}))
    place = choose(ledger, Job("pod", Kind.BATCH, "u", "q", "c", Request(gpus=1)))
    assert place is not None
    assert nodes_of(place) == ("n2",)
