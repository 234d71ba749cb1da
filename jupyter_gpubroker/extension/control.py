# SPDX-License-Identifier: BSD-3-Clause
"""Messages of this server to a kernel, on connections of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from jupyter_client.session import Session
from zmq.eventloop.zmqstream import ZMQStream

REQUEST = "gpubroker_lease"
REPLY = "gpubroker_lease_reply"
TYPES = (REQUEST, REPLY)
"""Not activity of a user, and they say nothing about a running cell."""

_LOAD = "import gpubroker; gpubroker.load_ipython_extension(get_ipython())"


class Connections(Protocol):
    """The part of a KernelManager that is used here."""

    session: Session

    def connect_control(self, identity: bytes | None = None) -> ZMQStream:
        """A stream to the control channel."""
        ...

    def connect_shell(self, identity: bytes | None = None) -> ZMQStream:
        """A stream to the shell channel."""
        ...


def own_session(kernel: Connections) -> Session:
    """A session with the kernel's key and an identity of its own.

    With the manager's identity a second connection would get none of the replies."""
    theirs = kernel.session
    return Session(key=theirs.key, signature_scheme=theirs.signature_scheme)


async def ask(
    kernel: Connections, content: Mapping[str, Any], seconds: float
) -> Mapping[str, Any] | None:
    """The content of the kernel's reply on the control channel; ``None`` if there is none
    within ``seconds``. Answered also while a cell runs."""
    session = own_session(kernel)
    stream = kernel.connect_control(identity=session.bsession)
    return await _exchange(session, stream, (REQUEST, REPLY), content, seconds)


async def load_magics(kernel: Connections, session: Session, seconds: float) -> None:
    """Load the magics in a Python kernel whose command line did not.

    A silent execute: it leaves In and Out alone and runs before a cell sent later."""
    content = {
        "code": _LOAD,
        "silent": True,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
    }
    stream = kernel.connect_shell(identity=session.bsession)
    await _exchange(session, stream, ("execute_request", "execute_reply"), content, seconds)


async def _exchange(
    session: Session,
    stream: ZMQStream,
    types: tuple[str, str],
    content: Mapping[str, Any],
    seconds: float,
) -> Mapping[str, Any] | None:
    reply: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()

    def receive(parts: list[bytes]) -> None:
        message = session.deserialize(session.feed_identities(parts)[1])
        if message["header"]["msg_type"] == types[1] and not reply.done():
            reply.set_result(message["content"])

    stream.on_recv(receive)
    try:
        session.send(stream, types[0], dict(content))
        async with asyncio.timeout(seconds):
            return await reply
    except TimeoutError:
        return None
    finally:
        stream.close()
