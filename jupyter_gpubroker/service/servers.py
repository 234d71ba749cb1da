# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints about Jupyter servers: what their extensions and the Hub report."""

from __future__ import annotations

from ..broker import inputs as i
from ..core.model import Holder, Process
from ..wire import ActivityIn, GoneIn, HolderIn, KernelIn
from ..wire import answered as a
from .base import Call


async def hello(call: Call) -> a.SessionState:
    """POST /servers/hello."""
    body = call.given(HolderIn)
    holder = Holder(host=body.host, boot=body.boot, pid=body.pid, start=body.start)
    return await _tell(
        call, i.ServerHello(call.principal.actor, call.server, body.incarnation, holder)
    )


async def activity(call: Call) -> a.SessionState:
    """POST /servers/activity."""
    body = call.given(ActivityIn)
    question = i.ServerActivity(
        actor=call.principal.actor,
        server=call.server,
        incarnation=body.incarnation,
        kernels=tuple(_kernel(kernel) for kernel in body.kernels),
        terminals_idle_for=body.terminals_idle_for,
        children=body.children,
    )
    return await _tell(call, question)


async def gone(call: Call) -> a.SessionState:
    """POST /servers/gone."""
    body = call.given(GoneIn)
    how = i.HowGone(body.how)
    return await _tell(call, i.ServerGone(call.principal.actor, call.server, body.incarnation, how))


async def state(call: Call) -> a.SessionState:
    """GET /servers/state."""
    return call.view.state(call.server)


async def _tell(call: Call, question: i.Question) -> a.SessionState:
    await call.desk.ask(question)
    return call.view.state(call.server)


def _kernel(kernel: KernelIn) -> i.Kernel:
    process = kernel.process
    return i.Kernel(
        id=kernel.id,
        busy=kernel.busy,
        idle_for=kernel.idle_for,
        process=None if process is None else Process(process.pid, process.start),
        name=kernel.name,
        managed=kernel.managed,
    )
