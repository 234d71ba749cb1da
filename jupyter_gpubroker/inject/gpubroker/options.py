# SPDX-License-Identifier: BSD-3-Clause
"""What can be said of a job that is submitted: the same in the magic and on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

_SHAPE = ("nodes", "gpus", "memory", "cpus", "host_memory", "time")
_REST = ("torchrun", "name", "queue", "class", "max_restarts", "requeue", "exit_zero_done")


def add_submit_options(add: Callable[..., Any]) -> None:
    """Declare them by ``add``, which takes what ``ArgumentParser.add_argument`` takes."""
    add("--nodes", type=int, help="machines, all or none (default 1)")
    add("--gpus", help="on each node, or a share of one, as 0.5 (default 1)")
    add("--memory", help="instead: a share by its GPU memory, as 20GiB")
    add("--cpus", type=float, help="on each node")
    add("--host-memory", help="on each node, as 64GiB")
    add("--flavor", action="append", default=[], help="kind of GPU; more than once = any of")
    add("--time", help="limit, as 10m, 2h or 1-12:00:00 (default: of its class)")
    add("--queue", help="queue to wait in")
    add("--class", help="priority class")
    add("--name", help="a name for people")
    env = "set a variable, or pass one on although its name looks like a secret's"
    add("--env", action="append", default=[], metavar="NAME[=VALUE]", help=env)
    add("--python", help="interpreter of a script (default: the one that is active here)")
    yes_no = argparse.BooleanOptionalAction
    add("--torchrun", action=yes_no, help="default: with several GPUs or nodes")
    add("--max-restarts", type=int, help="after failures (default: of its class)")
    add("--requeue", action=yes_no, help="again after exit 75 at its time limit (default: yes)")
    exit_zero = "exit code 0 after it was asked to leave means done, not interrupted"
    add("--exit-zero", dest="exit_zero_done", choices=["done"], help=exit_zero)


def wants_torchrun(options: Mapping[str, Any]) -> bool:
    """Whether the broker will start it by torchrun, as it does by default with several GPUs."""
    if options["torchrun"] is not None:
        return bool(options["torchrun"])
    try:
        return (options["nodes"] or 1) > 1 or float(options["gpus"] or 1) > 1
    except ValueError:
        return False  # the broker says what is wrong with that number


def submit_body(options: Mapping[str, Any]) -> dict[str, Any]:
    """What of POST /jobs these options say; what was not said is left out."""
    shape = {name: options[name] for name in _SHAPE if options[name] is not None}
    if options["flavor"]:
        shape["flavors"] = options["flavor"]
    body = {name: options[name] for name in _REST if options[name] is not None}
    if "exit_zero_done" in body:
        body["exit_zero_done"] = True
    return {"request": shape, **body}
