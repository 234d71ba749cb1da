# SPDX-License-Identifier: BSD-3-Clause
"""Whether a Request can ever run here: refused at submit, with the nearest that can.

Judged on what the nodes have, not on what is free or usable now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from .amounts import words_gpus
from .cohorts import ANY, Cohorts
from .model import (
    GPU_MILLI,
    Class,
    Device,
    Kind,
    Node,
    Policy,
    Refusal,
    Request,
    Seconds,
    serves,
)
from .quota import HOUR_MILLI_S, budgets_of, milli_of


def possible(request: Request, nodes: Iterable[Node], class_: Class) -> None:
    """Refusal naming the field and the nearest feasible shape if the Request can never run.

    While no node is known (the engine has not answered yet) only the time is judged.
    """
    request.for_people()
    _time(request, class_)
    known = tuple(nodes)
    if not known:
        return
    gangs = Kind.BATCH in class_.kinds
    if request.nodes > 1 and not gangs:
        raise Refusal("nodes", "a session runs on one node", "ask for nodes = 1")
    _flavors(request, known)
    if max(len(_wanted(node, request)) for node in known) < request.gpus + request.shared:
        _too_many_gpus(request, known, gangs)
    _share(request, known)
    _host(request, known)
    _gang(request, known)


def affordable(request: Request, queue: str, policy: Policy, nodes: Mapping[str, Node]) -> None:
    """Refusal if the limits of its queue, or its quota, can never be met by the Request, with
    its time limit, whatever else runs or was used."""
    milli, limits = milli_of(request, nodes), policy.queues[queue]
    for most, whose in ((limits.running_gpus, ""), (limits.user_gpus, " of one user")):
        if most is not None and milli > most * GPU_MILLI:
            raise Refusal(
                "gpus",
                f"the jobs{whose} in queue {queue} have at most {words_gpus(most * GPU_MILLI)} at"
                f" once, and this needs {milli / GPU_MILLI:g}",
                f"nearest that can run: {_smaller(request, most * GPU_MILLI)}",
            )
    _quota(request, queue, policy, nodes)
    for spending in budgets_of(queue, "each user", policy):
        budget, limit = spending.budget, request.time_limit or 0.0
        if milli * limit > budget.gpu_hours * HOUR_MILLI_S:
            longest = _duration(budget.gpu_hours * HOUR_MILLI_S // milli)
            raise Refusal(
                "time_limit",
                f"this may take {milli * limit / HOUR_MILLI_S:.3g} GPU-hours, and"
                f" {spending.who}{spending.where} has {budget.words()}",
                f"ask for at most {longest}, or for fewer GPUs",
            )


def _quota(request: Request, queue: str, policy: Policy, nodes: Mapping[str, Node]) -> None:
    """What the queue could have if nobody else used anything."""
    quotas = Cohorts(policy)
    if queue not in quotas.queues:
        return
    known = sorted({d.flavor for node in nodes.values() for d in _wanted(node, request)})
    rows: dict[str, list[str]] = {} if known or request.flavors else {ANY: []}
    for flavor in request.flavors or known:
        rows.setdefault(quotas.row(queue, flavor), []).append(flavor)
    best, words = -1, ""
    for row, flavors in rows.items():
        milli = milli_of(replace(request, flavors=tuple(flavors)), nodes)
        most = quotas.account(queue, row).most
        if milli <= most:
            return
        if most > best:
            of = "" if row == ANY else f" of flavor {row}"
            best, words = most, f"{words_gpus(most)}{of}, and this needs {milli / GPU_MILLI:g}"
    near = _smaller(request, best) if best else ""
    raise Refusal(
        "gpus",
        f"the jobs in queue {queue} have at most {words}",
        f"nearest that can run: {near}" if near else "use another queue",
    )


def _smaller(request: Request, most: int) -> str:
    """The shape next to the Request that takes no more milli."""
    each = request.gpus * GPU_MILLI
    if request.nodes > 1 and each <= most:
        return replace(request, nodes=most // each).words()
    whole, share = divmod(most, GPU_MILLI)
    share = 0 if whole else share
    return replace(request, nodes=1, gpus=whole, gpu_milli=share, memory_mib=0).words()


def _time(request: Request, class_: Class) -> None:
    if request.time_limit is not None and request.time_limit > class_.time_max:
        most = _duration(class_.time_max)
        asked = _duration(request.time_limit)
        raise Refusal(
            "time_limit",
            f"class {class_.name} allows at most {most}, got {asked}",
            f"ask for {most} or less",
        )


def _flavors(request: Request, nodes: Sequence[Node]) -> None:
    known = sorted({device.flavor for node in nodes for device in node.devices})
    unknown = [flavor for flavor in request.flavors if flavor not in known]
    if unknown:
        there = f"there are {', '.join(known)}" if known else "no node has a GPU"
        raise Refusal("flavors", f"no GPU is of flavor {', '.join(unknown)}", there)


def _too_many_gpus(request: Request, nodes: Sequence[Node], gangs: bool) -> None:
    """No node has enough devices."""
    of = f" of flavor {' or '.join(request.flavors)}" if request.flavors else ""
    most = max(len(_wanted(node, request)) for node in nodes)
    slices = sorted({each.flavor for node in nodes for each in node.devices if each.mig})
    if not most and slices:
        which = f"ask for one of their flavors: {', '.join(slices)}"
        raise Refusal("gpus", "there are MIG slices alone, no whole GPU", which)
    if not most:
        raise Refusal("gpus", "no node has a GPU", "ask for none")
    if request.shared:
        raise Refusal(
            "gpus",
            f"no node has {request.gpus} GPUs{of} and one more to share",
            f"at most {most - 1} GPUs beside the share" if most > 1 else "ask for the share alone",
        )
    near = f"{most} GPU{'s' if most > 1 else ''} on 1 node"
    wanted = request.nodes * request.gpus
    spread = [_spread(wanted, per, nodes, request) for per in range(most, 0, -1)]
    best = max(spread, key=lambda shape: (shape[0] * shape[1], -shape[0]))
    if gangs and best[0] > 1:
        near = f"nearest that can run: {best[0]} × {best[1]} GPUs, or {near}"
    else:
        near = f"nearest that can run: {near}"
    raise Refusal("gpus", f"no node has {request.gpus} GPUs{of}", near)


def _spread(wanted: int, per: int, nodes: Sequence[Node], request: Request) -> tuple[int, int]:
    """How many nodes of ``per`` GPUs come next to ``wanted`` in sum, without more."""
    enough = _widest(replace(request, nodes=1, gpus=per), nodes)
    return min(enough, wanted // per), per


def _share(request: Request, nodes: Sequence[Node]) -> None:
    if not request.memory_mib:
        return
    most = max(device.memory_mib for node in nodes for device in _wanted(node, request))
    if request.memory_mib > most:
        raise Refusal(
            "memory_mib",
            f"no GPU has {request.memory_mib} MiB, the largest has {most} MiB",
            f"ask for at most {most} MiB, or for whole GPUs",
        )
    if not any(_takes_gpus(node, request) for node in nodes):
        raise Refusal(
            "memory_mib",
            f"no node has {request.words()} together",
            "ask for less memory, or fewer GPUs beside it",
        )


def _host(request: Request, nodes: Sequence[Node]) -> None:
    """CPU and host memory, where nodes report them."""
    able = [node for node in nodes if _takes_gpus(node, request)]
    if any(_takes(node, request) for node in able):
        return
    shape = replace(request, nodes=1).words()
    if not any(_has_cpu(node, request) for node in able):
        most = max(node.cpu_milli for node in able)
        raise Refusal(
            "cpu_milli",
            f"no node with {shape} has {request.cpu_milli / 1000:g} CPUs",
            f"ask for at most {most / 1000:g}",
        )
    most = max(node.host_memory_mib for node in able if _has_cpu(node, request))
    raise Refusal(
        "host_memory_mib",
        f"no node with {shape} has {request.host_memory_mib} MiB of memory beside so many CPUs",
        f"ask for at most {most} MiB",
    )


def _gang(request: Request, nodes: Sequence[Node]) -> None:
    widest = _widest(request, nodes)
    if request.nodes > widest:
        nearest = replace(request, nodes=widest).words()
        raise Refusal(
            "nodes",
            f"only {widest} node{'s' if widest > 1 else ''} can take"
            f" {replace(request, nodes=1).words()}, got {request.nodes}",
            f"nearest that can run: {nearest}",
        )


def _widest(request: Request, nodes: Sequence[Node]) -> int:
    """On how many nodes of one engine one node's part of the Request can run."""
    counts: dict[str, int] = {}
    for node in nodes:
        if _takes(node, request):
            counts[node.engine] = counts.get(node.engine, 0) + 1
    return max(counts.values(), default=0)


def _wanted(node: Node, request: Request) -> list[Device]:
    return [device for device in node.devices if serves(request, device)]


def _takes_gpus(node: Node, request: Request) -> bool:
    devices = _wanted(node, request)
    fits = any(request.share_milli(device.memory_mib) <= GPU_MILLI for device in devices)
    return len(devices) >= request.gpus + request.shared and (fits or not request.shared)


def _has_cpu(node: Node, request: Request) -> bool:
    return not node.cpu_milli or node.cpu_milli >= request.cpu_milli


def _takes(node: Node, request: Request) -> bool:
    memory = not node.host_memory_mib or node.host_memory_mib >= request.host_memory_mib
    return _takes_gpus(node, request) and _has_cpu(node, request) and memory


def _duration(seconds: Seconds) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"
