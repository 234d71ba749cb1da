# SPDX-License-Identifier: BSD-3-Clause
"""Which NVIDIA GPUs of this host are joined more closely than others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import combinations
from typing import Any

import pynvml


def islands(gpus: Mapping[int, Any]) -> dict[int, int]:
    """The island of each GPU, given the library's handles by index: the lowest index in it.

    GPUs that NVLink joins, directly or over others. Where the driver tells of no NVLink,
    those of one NUMA node; where it does not tell that either, all of them."""
    for joined in (_by_nvlink, _by_node):
        found = _grouped(gpus, joined)
        if len(dict.fromkeys(found.values())) < len(found):
            return found
    return dict.fromkeys(gpus, 0)


def _grouped(gpus: Mapping[int, Any], joined: Callable[[Any, Any], bool]) -> dict[int, int]:
    island = {index: index for index in gpus}
    for one, other in combinations(sorted(gpus), 2):
        with suppress(pynvml.NVMLError):  # a question that this driver or GPU does not answer
            if island[one] != island[other] and joined(gpus[one], gpus[other]):
                low, high = sorted((island[one], island[other]))
                island = {index: low if at == high else at for index, at in island.items()}
    return island


def _by_nvlink(one: Any, other: Any) -> bool:
    status = pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    return bool(status == pynvml.NVML_P2P_STATUS_OK)


def _by_node(one: Any, other: Any) -> bool:
    level = pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
    return bool(level <= pynvml.NVML_TOPOLOGY_NODE)
