# SPDX-License-Identifier: BSD-3-Clause
"""Who asks: by a token of the Hub, or by the uid at the other end of a unix socket."""

from __future__ import annotations

import asyncio
import grp
import hashlib
import hmac
import os
import pwd
import re
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from jupyterhub.services.auth import HubOAuth
from tornado.httputil import HTTPServerRequest
from tornado.web import HTTPError

from ..wire.endpoints import ADMIN, USE

USE_ALL = "access:services"
_SERVER = "access:servers!server="
_TOKEN = re.compile(r"(?:token|bearer)\s+(\S+)\s*", re.IGNORECASE)

FRESH_S = 60.0
"""How long the Hub's word about a token is good enough for reading."""
HUB_TIMEOUT_S = 10.0
CACHE_MAX = 10_000


class Unauthenticated(Exception):
    """Nobody said who they are, or the Hub does not know them."""


class Forbidden(Exception):
    """Known, and not allowed to do this; the message says what is missing."""


class HubUnreachable(Exception):
    """The Hub cannot be asked who somebody is."""


class PrincipalKind(StrEnum):
    """How a principal proved who it is."""

    HUB = "hub"
    """The Hub itself, with the service's own token: may act for any user."""
    USER = "user"
    ADMIN = "admin"
    """A token whose scopes say so."""
    PEER = "peer"
    """A process on this machine."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    kind: PrincipalKind
    user: str
    """Empty for the Hub."""
    admin: bool = False
    server: str | None = None
    """Session key of the one server its token belongs to."""
    scopes: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    """The user's, in the Hub or on this machine; none are known of those the Hub acts for."""

    @property
    def sees_all(self) -> bool:
        """Whether it may see and handle everybody's work."""
        return self.admin or self.kind is PrincipalKind.HUB

    @property
    def actor(self) -> str:
        """Its name in the journal."""
        match self.kind:
            case PrincipalKind.HUB:
                return "hub"
            case PrincipalKind.PEER:
                return f"peer:{self.user}"
            case kind:
                return f"{kind.value}:{self.user}"


class Auth(Protocol):
    """One way to know who asks."""

    async def principal(self, request: HTTPServerRequest, *, fresh: bool) -> Principal:
        """Who sent the request; ``fresh`` = do not rely on what was true a minute ago.

        Unauthenticated, Forbidden or HubUnreachable are raised."""
        ...


# --- tokens of the Hub ------------------------------------------------------------------


class HubAuth:
    """Tokens, as the Hub knows them. One per process: the Hub's client is a singleton."""

    def __init__(
        self,
        api_token: str,
        *,
        hub: HubOAuth | None = None,
        clock: Callable[[], float] = time.monotonic,
        timeout: float = HUB_TIMEOUT_S,
    ) -> None:
        """``api_token`` is the service's own; ``hub`` is configured from the environment that
        the Hub gives its services if it is left out."""
        self._own = api_token
        self._hub = hub or HubOAuth.instance(api_token=api_token)
        self._clock = clock
        self._timeout = timeout
        self._known: OrderedDict[str, tuple[float, Principal]] = OrderedDict()

    async def principal(self, request: HTTPServerRequest, *, fresh: bool) -> Principal:
        """See ``Auth.principal``."""
        token = _token_of(request)
        if hmac.compare_digest(token.encode(), self._own.encode()):
            return Principal(PrincipalKind.HUB, "")
        # The token itself is kept nowhere.
        key = hashlib.sha256(token.encode()).hexdigest()
        seen, principal = self._known.get(key, (0.0, None))
        if principal is not None and not fresh and self._clock() - seen < FRESH_S:
            return principal
        # A token that is not good any more must not live on in the cache.
        self._known.pop(key, None)
        principal = principal_of(await self._ask(token))
        self._known[key] = (self._clock(), principal)
        while len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)
        return principal

    async def _ask(self, token: str) -> Mapping[str, Any]:
        """The Hub's model of a token."""
        try:
            async with asyncio.timeout(self._timeout):
                model = await self._hub.user_for_token(token, use_cache=False, sync=False)
        except (HTTPError, TimeoutError):
            raise HubUnreachable(
                "JupyterHub cannot be asked who you are: nothing was changed, and everything "
                "that runs goes on; try again in a moment"
            ) from None
        if model is None:
            raise Unauthenticated("JupyterHub does not know this token; it may have expired")
        return dict(model)


def _token_of(request: HTTPServerRequest) -> str:
    match = _TOKEN.fullmatch(request.headers.get("Authorization", ""))
    if match is None:
        raise Unauthenticated("send your JupyterHub token: Authorization: token <token>")
    return match.group(1)


def principal_of(model: Mapping[str, Any]) -> Principal:
    """The principal of the Hub's model of a token; Forbidden without our scope.

    The model's ``admin`` flag is never looked at: it is true for every token of an admin,
    the one that their notebook's code can read included."""
    scopes = frozenset(str(scope) for scope in model.get("scopes") or ())
    name = str(model.get("name", ""))
    if not scopes & {USE, USE_ALL}:
        raise Forbidden(f"this token of {name} lacks the scope {USE}")
    admin = ADMIN in scopes
    if model.get("kind") != "user":
        # A service may have the name of a user: it must never pass for that user.
        if not admin:
            raise Forbidden(f"{name} is no user, and its token lacks the scope {ADMIN}")
        return Principal(PrincipalKind.ADMIN, f"service:{name}", admin=True, scopes=scopes)
    kind = PrincipalKind.ADMIN if admin else PrincipalKind.USER
    return Principal(
        kind,
        name,
        admin=admin,
        server=_server_of(name, scopes),
        scopes=scopes,
        groups=tuple(str(group) for group in model.get("groups") or ()),
    )


def _server_of(user: str, scopes: frozenset[str]) -> str | None:
    """The server that a token names; ``None`` if it names none, or not exactly one."""
    keys = [scope.removeprefix(_SERVER) for scope in scopes if scope.startswith(_SERVER)]
    own = [key for key in keys if key.startswith(f"{user}/")]
    return own[0] if len(own) == 1 else None


# --- peers ------------------------------------------------------------------------------

_UCRED = struct.Struct("3i")
_OVERFLOW_UID = "/proc/sys/kernel/overflowuid"


class PeerAuth:
    """Processes at the other end of a unix socket, by their uid."""

    def __init__(self, *, shared: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """``shared``: all users of this machine; else only the daemon's own and root."""
        self._shared = shared
        self._admins = frozenset({0, os.geteuid()})
        self._nobody = _overflow_uid()
        self._clock = clock
        self._names: dict[int, tuple[float, tuple[str, tuple[str, ...]]]] = {}
        """Uid -> when it was looked up, and its name."""

    async def principal(self, request: HTTPServerRequest, *, fresh: bool) -> Principal:
        """See ``Auth.principal``; a uid is known at once and for sure."""
        uid = _peer_uid(request)
        if uid == self._nobody:
            raise Forbidden("your user is not known on this machine: are you in a container?")
        if not self._shared and uid not in self._admins:
            raise Forbidden("this broker belongs to another user")
        name, groups = self._known(uid)
        admin = uid in self._admins
        return Principal(PrincipalKind.PEER, name, admin=admin, groups=groups)

    def _known(self, uid: int) -> tuple[str, tuple[str, ...]]:
        """Where accounts come from a network, a look-up of each request would be slow."""
        seen, who = self._names.get(uid, (0.0, None))
        if who is None or self._clock() - seen > FRESH_S:
            who = account(uid), groups_of(uid)
            self._names[uid] = (self._clock(), who)
        return who


def account(uid: int) -> str:
    """The name of an account; ``uid-1000`` where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def groups_of(uid: int) -> tuple[str, ...]:
    """The names of an account's groups; those that have none are left out."""
    try:
        who = pwd.getpwuid(uid)
    except KeyError:
        return ()
    names = []
    for gid in os.getgrouplist(who.pw_name, who.pw_gid):
        with suppress(KeyError):
            names.append(grp.getgrgid(gid).gr_name)
    return tuple(names)


def _peer_uid(request: HTTPServerRequest) -> int:
    stream = getattr(request.connection, "stream", None)
    peer = getattr(stream, "socket", None)
    if not isinstance(peer, socket.socket) or peer.family != socket.AF_UNIX:
        raise Unauthenticated("this address needs a unix socket")
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _pid, uid, _gid = _UCRED.unpack(credentials)
    return int(uid)


def _overflow_uid() -> int:
    try:
        with open(_OVERFLOW_UID, encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return 65534
