# SPDX-License-Identifier: BSD-3-Clause
"""Spawners that get a GPU session for a server: a mixin, a factory, two ready classes.

Every Hub of an environment imports this module, also one that uses another spawner:
nothing heavy is imported here, and every entry point is a class.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import entry_points
from math import inf
from typing import TYPE_CHECKING, Any

from jupyterhub.spawner import (
    LocalProcessSpawner,
    SimpleLocalProcessSpawner,
    Spawner,
    SpawnException,
)
from jupyterhub.utils import maybe_future
from traitlets import Enum, Float, Integer, Unicode, default
from traitlets.utils.importstring import import_item

from .story import Story

if TYPE_CHECKING:
    from ..wire import JobOut
    from .asking import Asking, How
    from .bound import Bound

__all__ = ["GPUBrokerMixin", "GPUBrokerSpawner", "SimpleGPUBrokerSpawner", "gpu_spawner"]

ANY_WAIT_S = 366 * 86400
"""The Hub's limit of a whole start, the wait in the queue included."""
STOP_PATIENCE_S = 10.0
"""How long a stop waits for the broker to have heard of it."""
END_PATIENCE_S = 0.5
"""The same for a start that ends early: the Hub gives a cancelled one only a second."""
FORM_PATIENCE_S = 5.0
STATE = "gpubroker"
REFUSED = "gpu-refused"
"""Reason of a start that the broker refused: nothing was changed."""

_telling: set[asyncio.Task[bool]] = set()
"""News for the broker that outlive their spawners."""


class GPUBrokerMixin(Spawner):  # type: ignore[misc]  # jupyterhub has no types
    """Asks the GPU broker for a session before the server starts, and gives it back after.

    A wait is not an error: ``start`` may last as long as the queue. Every start draws a
    number, its *incarnation*, which all messages carry: late news of an old server never
    touches a new one. What people may write into ``user_options`` is told in ``wish``."""

    broker_url = Unicode(
        help="Address of the GPU broker with its prefix: http://HOST:PORT/services/gpubroker."
    ).tag(config=True)
    broker_token_file = Unicode(
        help="File with the API token of the Hub's service gpubroker (0600)."
    ).tag(config=True)
    gpu_wait = Enum(
        ("attach", "start"),
        default_value="attach",
        help="`attach`: servers start at once and the GPU attaches when it is granted. "
        "`start`: the start itself waits in the queue.",
    ).tag(config=True)
    binding = Enum(
        ("kernel", "server"),
        default_value="kernel",
        help="`kernel`: our extension in the server binds each kernel. `server`: for servers "
        "without our package; the server is started with its GPUs (`gpu_wait='start'` only), "
        "nothing of it can be parked, and it is stopped when its GPUs are taken.",
    ).tag(config=True)
    server_start_timeout = Float(
        120.0,
        help="Seconds that the server itself may take to start. `start_timeout` limits the "
        "wait in the queue too; leave it long.",
    ).tag(config=True)

    hello_timeout = Float(
        60.0,
        help="Seconds after the server answers in which our extension in it says hello to the "
        "broker. Then the log and the queue say that it is missing.",
    ).tag(config=True)

    incarnation = Integer(0, help="Number of this start of the server; grows for ever.")

    _waiting = False
    """A start asks for a GPU, and nothing of the server runs yet."""
    _starting = False
    _stopping = False
    _ended = 0
    """The incarnation whose end the broker knows, or is being told."""
    _hello_due = inf
    """When our extension in the server has to have said hello, on the loop's clock."""
    _story: Story | None = None
    _gpu_env: Mapping[str, str] = {}
    """What a server that is bound as a whole is launched with."""
    _lease = ""
    """The grant that this server was launched with, if it is bound as a whole."""

    @default("start_timeout")
    def _long_start_timeout(self) -> int:
        return ANY_WAIT_S

    @default("options_form")
    def _gpu_options_form(self) -> Any:
        return _form

    @default("options_from_form")
    def _gpu_options_from_form(self) -> Any:
        return _from_form

    @default("apply_user_options")
    def _gpu_apply_user_options(self) -> Any:
        return _read_at_start

    # --- start --------------------------------------------------------------------------

    async def start(self) -> Any:
        """Ask for the GPU, wait for it if ``gpu_wait`` says so, then start the server.

        SpawnException for a refusal; whatever ends a start early, nothing is left behind."""
        self._story = story = Story()
        self._draw_incarnation()
        self._starting = self._waiting = True
        how: How = "withdrawn"
        try:
            await self._ask(story)
            how, self._waiting = "failed", False
            story.end()
            url = await self._start_server()
            await self._hold_on()
            return url
        except BaseException as error:
            self._waiting = False
            story.end(failed=True)
            if not (isinstance(error, SpawnException) and error.reason == REFUSED):
                await self._tell(how, END_PATIENCE_S)
            raise
        finally:
            self._starting = False

    def _draw_incarnation(self) -> None:
        self.incarnation = max(self.incarnation + 1, int(time.time() * 1000))
        self._lease, self._hello_due = "", inf
        # The Hub stores the state only after a start; it may be killed during this one.
        self.orm_spawner.state = self.get_state()
        self.user.db.commit()

    async def _ask(self, story: Story) -> None:
        from . import asking, wish  # noqa: PLC0415 - see the top of this file

        broker = self._asking()
        try:
            self._check_binding()
            wanted = wish.read(self.user_options)
            if wanted.discard:
                self._discard_once()
            if not wanted.gpus:
                self._launch_with(await broker.leave(self.incarnation))
                return
            attach = self.gpu_wait == "attach"
            session = await broker.open(
                wanted, self.incarnation, attach=attach, whole=self.binding == "server"
            )
            story.say(*asking.words(session))
            if not attach:
                session = await broker.until_granted(session, story.say)
                story.say(45, asking.granted(session, stops=self.binding == "server"))
                self._launch_with_lease(session)
        except asking.ERRORS as error:
            told = asking.refused(error)
            story.say(45, told.message)
            raise told from None

    def _check_binding(self) -> None:
        if self.binding == "server" and self.gpu_wait != "start":
            from ..client import Refusal  # noqa: PLC0415 - see the top of this file

            text = "'server' needs gpu_wait='start': the server is started with its GPUs"
            raise Refusal("binding", text, "an admin of the Hub has to set one of them")

    def _launch_with(self, env: Mapping[str, str], lease: str = "") -> None:
        """What the server is bound to, where it is bound as a whole."""
        from .bound import NO_GPU  # noqa: PLC0415 - see the top of this file

        if self.binding == "server":
            self._gpu_env, self._lease = {**NO_GPU, **env}, lease

    def _launch_with_lease(self, session: JobOut) -> None:
        from .bound import lease_of  # noqa: PLC0415 - see the top of this file

        assert session.lease is not None
        self._launch_with(session.lease.env, lease_of(session))

    def _discard_once(self) -> None:
        """The Hub starts a server again with the options of the last time."""
        options: dict[str, Any] = dict(self.user_options)
        options.pop("discard", None)
        self.orm_spawner.user_options = options
        self.user.db.commit()

    async def _start_server(self) -> Any:
        limit = self.server_start_timeout
        try:
            async with asyncio.timeout(limit):
                return await maybe_future(super().start())
        except TimeoutError as error:
            text = f"The server did not start within {limit:g} s (server_start_timeout)."
            self.log.error("%s: %s", self._log_name, text)
            error.jupyterhub_message = text  # type: ignore[attr-defined]  # the Hub shows it
            raise

    # --- a server that is bound as a whole ------------------------------------------------

    async def _hold_on(self) -> None:
        """The server has its GPUs from now on, unless they were taken while it started."""
        if not self._lease or await self._bound().goes_on(new=True):
            return
        from . import asking  # noqa: PLC0415 - see the top of this file

        await maybe_future(super().stop())
        text = "the GPUs of this start were taken back before its server was up"
        raise asking.refused(asking.SessionEnded(text))

    async def _has_to_go(self) -> bool:
        """Whether the lease is over that the running server was launched with."""
        if not self._lease or self._starting or self._stopping:
            return False
        return not await self._bound().goes_on()

    def _bound(self) -> Bound:
        from .bound import Bound  # noqa: PLC0415 - see the top of this file

        # Others have pids too, of other machines.
        pid = self.pid if isinstance(self, LocalProcessSpawner) else 0
        return Bound(self._asking(), self.incarnation, self._lease, pid)

    # --- end ----------------------------------------------------------------------------

    async def stop(self, now: bool = False) -> None:
        """Stop the server, then end its session."""
        if self._waiting:
            return  # nothing runs yet; the start itself withdraws
        self._stopping = True
        try:
            await maybe_future(super().stop(now))
        finally:
            self._stopping = False
        await self._tell("stopped", STOP_PATIENCE_S)

    async def poll(self) -> int | None:
        """``None`` while the start waits for a GPU: it has not failed.

        A server whose GPUs are taken and that has none without them is stopped here: the Hub
        asks again and again, also after a restart."""
        if self._waiting:
            return None
        status: int | None = await maybe_future(super().poll())
        if status is None:
            await self._listen()
        if status is None and await self._has_to_go():
            self.log.warning("%s: the GPUs it was started with are taken; stopping", self._log_name)
            self._stopping = True
            try:
                await maybe_future(super().stop())
                status = await maybe_future(super().poll())
            finally:
                self._stopping = False
        return status

    async def _listen(self) -> None:
        """Once after each start: whether our extension in the server has said hello."""
        if self.binding != "kernel" or not self.ready or self._hello_due < 0:
            return
        now = asyncio.get_running_loop().time()
        self._hello_due = min(self._hello_due, now + self.hello_timeout)
        if now >= self._hello_due:
            self._hello_due = -1.0
            if await self._asking().misses(self.incarnation):
                text = "%s: jupyter-gpubroker in it has not said hello to the GPU broker: %s"
                self.log.warning(text, self._log_name, "it gets no GPU until it is installed there")

    def clear_state(self) -> None:
        """The server is gone. A poll calls this for one that died, and every start does
        before it begins: it never releases, the broker waits for a server to come back."""
        super().clear_state()
        self._lease = ""
        if self._starting or self._stopping or self._ended >= self.incarnation:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._begin_to_tell("gone")

    async def _tell(self, how: How, patience: float) -> None:
        """Tell the broker, and go on telling when ``patience`` has run out."""
        await asyncio.wait({self._begin_to_tell(how)}, timeout=patience)

    def _begin_to_tell(self, how: How) -> asyncio.Task[bool]:
        self._ended = self.incarnation
        task = asyncio.create_task(self._asking().tell(how, self.incarnation))
        _telling.add(task)
        task.add_done_callback(_telling.discard)
        return task

    # --- what the Hub stores and shows --------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Keeps the incarnation, also of a server that has ended."""
        state: dict[str, Any] = super().get_state()
        if self.incarnation:
            state[STATE] = {"incarnation": self.incarnation}
        if self._lease:
            state[STATE]["lease"] = self._lease
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """After a restart of the Hub."""
        super().load_state(state)
        own = state.get(STATE, {})
        self.incarnation, self._lease = int(own.get("incarnation", 0)), str(own.get("lease", ""))

    def get_env(self) -> dict[str, str]:
        """Where the broker is, and which server this is; kernels inherit it. Where the server
        is bound as a whole, its GPUs too, or that it has none."""
        env: dict[str, str] = super().get_env()
        env |= self._gpu_env
        env["GPUBROKER_URL"] = self.broker_url
        env["GPUBROKER_SESSION"] = f"{self.user.name}/{self.name}"
        env["GPUBROKER_INCARNATION"] = str(self.incarnation)
        return env

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Position and reason while it waits, then what the spawner below has to say."""
        story = self._story
        if story is not None:
            async for line in story.follow():
                yield line
            if story.failed:
                return
        async for event in super().progress():
            yield event

    def _asking(self) -> Asking:
        from .asking import Asking  # noqa: PLC0415 - see the top of this file

        groups = tuple(group.name for group in self.user.groups)
        return Asking(
            self.broker_url, self.broker_token_file, self.user.name, self.name, self.log, groups
        )


# --- the spawn form ---------------------------------------------------------------------


async def _form(spawner: GPUBrokerMixin) -> str:
    from . import asking, form  # noqa: PLC0415 - see the top of this file

    try:
        async with asyncio.timeout(FORM_PATIENCE_S):
            offers = await spawner._asking().offers()
    except TimeoutError:
        return form.closed("the GPU broker does not answer in time")
    except asking.ERRORS as error:
        return form.closed(str(error))
    attach, stops = spawner.gpu_wait == "attach", spawner.binding == "server"
    return form.render(offers, spawner.user_options, attach=attach, stops=stops)


def _from_form(form_data: dict[str, list[Any]]) -> dict[str, Any]:
    from .wish import from_form  # noqa: PLC0415 - see the top of this file

    return from_form(form_data)


def _read_at_start(_spawner: Spawner, _options: dict[str, Any]) -> None:
    """``start`` reads the options; without a hook the Hub would call them unhandled."""


# --- classes ----------------------------------------------------------------------------


class GPUBrokerSpawner(GPUBrokerMixin, LocalProcessSpawner):  # type: ignore[misc]
    """Servers as processes of their users' accounts, with a GPU session."""


class SimpleGPUBrokerSpawner(GPUBrokerMixin, SimpleLocalProcessSpawner):  # type: ignore[misc]
    """Servers as processes of the Hub's account: for demos and tests."""


def gpu_spawner(base: str | type) -> type:
    """A spawner with GPU sessions over any other.

    ``base`` is a class, its full name, or its entry point in ``jupyterhub.spawners``;
    ValueError if that is no Spawner."""
    found = _load(base) if isinstance(base, str) else base
    if not (isinstance(found, type) and issubclass(found, Spawner)):
        raise ValueError(f"{base!r} is not a Spawner class of JupyterHub")
    if issubclass(found, GPUBrokerMixin):
        return found
    more = {"__doc__": f"{found.__name__} with a GPU session.", "__module__": __name__}
    return type(f"GPUBroker{found.__name__}", (GPUBrokerMixin, found), more)


def _load(name: str) -> Any:
    for entry in entry_points(group="jupyterhub.spawners", name=name):
        return entry.load()
    try:
        return import_item(name)
    except ImportError as error:
        raise ValueError(f"there is no spawner {name!r}: {error}") from None
