# SPDX-License-Identifier: BSD-3-Clause
"""``Client`` and ``AsyncClient``: the broker's API from Python."""

from ..core.model import Conflict, Refusal
from .address import SHARED_SOCKET, Address, solo_socket_path
from .clients import AsyncClient, Client
from .errors import BrokerError, Forbidden, Limited, Unauthenticated, Unavailable, Unknown

__all__ = [
    "SHARED_SOCKET",
    "Address",
    "AsyncClient",
    "BrokerError",
    "Client",
    "Conflict",
    "Forbidden",
    "Limited",
    "Refusal",
    "Unauthenticated",
    "Unavailable",
    "Unknown",
    "solo_socket_path",
]
