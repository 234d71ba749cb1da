# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints about the whole: health, queue, machines, policy."""

from __future__ import annotations

import asyncio
from typing import Any

from .. import policy as policies
from ..broker.inputs import ApplyPolicy
from ..wire import PolicyIn
from ..wire import answered as a
from .base import Call


async def health(call: Call) -> a.HealthOut:
    """GET /health."""
    world = call.desk.world
    problems = [
        *world.problems.values(),
        *(f"{engine}: {text}" for engine, text in world.engines_down.items()),
    ]
    return a.HealthOut(
        status="degraded" if problems else "ok",
        problems=tuple(problems),
        version=call.service.version,
        seq=world.seq,
    )


async def document(call: Call) -> dict[str, Any]:
    """GET /openapi.json."""
    return dict(call.service.document())


async def queue(call: Call) -> list[a.QueueRow]:
    """GET /queue."""
    return call.view.queue()


async def nodes(call: Call) -> list[a.NodeOut]:
    """GET /nodes."""
    return call.view.nodes()


async def shapes(call: Call) -> a.ShapesOut:
    """GET /shapes."""
    return call.view.shapes()


async def policy(call: Call) -> a.PolicyOut:
    """GET /policy."""
    row, drift = call.desk.policy()
    return a.PolicyOut(
        revision=row.revision,
        author=row.author,
        time=row.time,
        document=row.document,
        drift=drift,
    )


async def check_policy(call: Call) -> a.PolicyOut:
    """POST /policy/check: Refusal, or the document as it would be applied."""
    text = call.given(PolicyIn).document
    row, _ = call.desk.policy()
    await asyncio.to_thread(policies.parse, text, row.revision + 1)
    return a.PolicyOut(
        revision=row.revision + 1,
        author=call.principal.actor,
        time=call.service.clock(),
        document=text,
    )


async def apply_policy(call: Call) -> a.PolicyOut:
    """PUT /policy."""
    text = call.given(PolicyIn).document
    question = ApplyPolicy(
        call.principal.actor, text, await asyncio.to_thread(policies.parse, text)
    )
    await call.desk.ask(question)
    return await policy(call)
