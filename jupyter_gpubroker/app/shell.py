# SPDX-License-Identifier: BSD-3-Clause
"""The async shell around the broker: drain the inbox, commit, answer, act, wake up.

Everything slow runs in threads or tasks; one loop owns the Broker, so that it never
sees two turns at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn, ParamSpec, TypeVar

from ..broker import Broker, Turn
from ..broker import inputs as i
from ..broker.world import World
from ..core.model import Job, JobId, Key, Policy, Seconds
from ..engines import LogChunk
from ..service import Degraded
from ..store import Entry, LaunchRow, Loaded, PolicyRow, StaleEpoch, StoreError
from .hands import Hands
from .journal import Journal
from .setup import Setup, new_id

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

STORE_RETRY_S = 5.0
OPEN_PATIENCE_S = 10.0
STORE_MISSING = "the store is not open yet"


class Shell:
    """Implements ``service.Desk``; ``run`` until cancelled, or until another broker opened
    the store (StaleEpoch is raised)."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.clock = setup.clock
        self.ready = asyncio.Event()
        self.journal = Journal(self._read)
        self._inbox: asyncio.Queue[tuple[i.Input, asyncio.Future[i.Answer] | None]] = (
            asyncio.Queue()
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._tasks: set[asyncio.Task[None]] = set()
        self._unread: dict[JobId, asyncio.Future[LaunchRow | None]] = {}
        """What is asked of the store next, by those who start Jobs."""
        self._hands = Hands(setup, self.put, self._launch_row)
        self.broker = self._broker(_nothing())
        self.world.problems = {"store": STORE_MISSING, **setup.problems}

    # --- Desk ---------------------------------------------------------------------------

    @property
    def world(self) -> World:
        """What the broker knows; read only."""
        return self.broker.world

    async def ask(self, question: i.Question) -> Job | None:
        """Decide, commit, then answer."""
        await self.opened()
        if isinstance(question, i.Submit):
            (question,) = self._with_accounts([question])
        return (await self._asked(question)).job

    async def submit(self, asked: Sequence[i.Submit]) -> Sequence[Job]:
        """Several batch Jobs, in one transaction."""
        await self.opened()
        actor = asked[0].actor
        return (await self._asked(i.SubmitList(actor, self._with_accounts(asked)))).jobs

    def _with_accounts(self, asked: Sequence[i.Submit]) -> tuple[i.Submit, ...]:
        accounts = {user: self.setup.account(user) for user in {each.user: 0 for each in asked}}
        return tuple(
            replace(each, launch=replace(each.launch, account=accounts[each.user]))
            for each in asked
        )

    async def _asked(self, question: i.Question) -> i.Answer:
        answer: asyncio.Future[i.Answer] = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait((question, answer))
        given = await answer
        if given.error is not None:
            raise given.error
        return given

    async def opened(self) -> None:
        """Only a broker that is just coming up is worth waiting for."""
        # No such problem any more, and not ready: it looks at the nodes.
        if self.world.problems.get("store", STORE_MISSING) == STORE_MISSING:
            with suppress(TimeoutError):
                async with asyncio.timeout(OPEN_PATIENCE_S):
                    await self.ready.wait()
        if not self.ready.is_set():
            raise Degraded(self.world.problems.get("store", STORE_MISSING))

    def entries(self, after: int) -> AsyncIterator[Sequence[Entry]]:
        """Journal entries with seq > ``after``, waiting for new ones."""
        return self.journal.follow(after)

    async def story(self, job: str, limit: int) -> Sequence[Entry]:
        """The last entries about one Job, oldest first."""
        return await self._in_thread(self.setup.store.story, job, limit)

    async def find(self, job: str) -> Job | None:
        """A Job, also one that is no longer in memory."""
        known = self.world.jobs.get(job)
        if known is not None or not self.ready.is_set():
            return known
        return await self._in_thread(self.setup.store.job, job)

    async def logs(self, key: Key, rank: int, offset: int, limit: int) -> LogChunk:
        """Part of a rank's log."""
        return await self._hands.engine_of(await self.find(key.job)).logs(key, rank, offset, limit)

    async def ranks(self, key: Key) -> Sequence[int]:
        """Ranks that have a log."""
        return await self._hands.engine_of(await self.find(key.job)).ranks(key)

    def environment(self, job: Job | None) -> dict[str, str]:
        """What binds a process to the Job's lease."""
        return self._hands.environment(job)

    def guarantees(self, job: Job) -> dict[str, object]:
        """What the Job's lease guarantees."""
        return self._hands.guarantees(job)

    def policy(self) -> tuple[PolicyRow, str]:
        """The current policy and how the file differs."""
        row = self.world.policy_row
        if row is None:
            row = PolicyRow(0, self.setup.policy_document, "default", 0.0)
        return row, self.world.problems.get("policy file", "")

    # --- the loop -----------------------------------------------------------------------

    def put(self, fact: i.Fact) -> None:
        """News that nobody waits for."""
        self._inbox.put_nowait((fact, None))

    async def run(self) -> NoReturn:
        """Open the store (again and again if it must be), then take turns for ever."""
        wake: Seconds | None = None
        try:
            while True:
                if not self.ready.is_set():
                    await self._open()
                    wake = self.clock()
                news = await self._wait(wake)
                wake = await self._turn(news)
        finally:
            await self._close()

    async def _open(self) -> None:
        while True:
            try:
                loaded = await self._in_thread(self.setup.store.open)
            except StoreError as error:
                self.world.problems["store"] = str(error)
                log.error("store: %s", error)
                await asyncio.sleep(STORE_RETRY_S)
                continue
            problems = {k: v for k, v in self.world.problems.items() if k != "store"}
            self.broker = self._broker(loaded)
            self.journal.begin(loaded.seq)
            self.world.problems |= problems
            self._check_stored_policy(loaded)
            # Before any question: whether a request can ever run depends on the nodes.
            await self._hands.look_at_nodes()
            self.ready.set()
            self._hands.watch(lambda: self.world)
            return

    def _broker(self, loaded: Loaded) -> Broker:
        world = World.of(loaded, self.setup.policy, self.clock())
        ladders = {name: engine.caps.ladder for name, engine in self.setup.engines.items()}
        return Broker(world, ladders, new_id)

    def _check_stored_policy(self, loaded: Loaded) -> None:
        row, parse = loaded.policy, self.setup.parse_policy
        if row is None:
            if "policy" not in self.world.problems:
                apply = i.ApplyPolicy("broker", self.setup.policy_document, self.setup.policy)
                self._inbox.put_nowait((apply, asyncio.get_running_loop().create_future()))
            return
        try:
            self.world.policy = parse(row.document, row.revision)
            self.world.problems.pop("policy", None)
        except ValueError as error:
            self.world.problems["policy"] = f"the stored policy cannot be used: {error}"
            return
        self._compare_policy()

    def _compare_policy(self) -> None:
        """Say it where the file is not what is in force: it is never applied silently."""
        file, row = self.setup.policy_file, self.world.policy_row
        self.world.problems.pop("policy file", None)
        if not file or row is None or _same(self.setup.policy, self.world.policy):
            return
        told = (
            f"{file} differs from the policy in force (revision {row.revision} by {row.author}):"
            " see `jupyter gpubroker policy diff`, then `apply` it, or write `policy show` to it"
        )
        log.warning("%s", told)
        self.world.problems["policy file"] = told

    async def _wait(
        self, wake: Seconds | None
    ) -> list[tuple[i.Input, asyncio.Future[i.Answer] | None]]:
        timeout = None if wake is None else max(0.0, wake - self.clock())
        news = []
        try:
            async with asyncio.timeout(timeout):
                news.append(await self._inbox.get())
        except TimeoutError:
            return []
        while not self._inbox.empty():
            news.append(self._inbox.get_nowait())
        return news

    async def _turn(
        self, news: Sequence[tuple[i.Input, asyncio.Future[i.Answer] | None]]
    ) -> Seconds | None:
        answers = [answer for _, answer in news if answer is not None]
        turn = self.broker.turn([item for item, _ in news], self.clock())
        try:
            if turn.writes:
                await self._in_thread(self.setup.store.commit, turn.writes)
        except StaleEpoch:
            _fail(answers, Degraded("another broker has taken over"))
            raise
        except StoreError as error:
            # The world in memory is ahead of the store: start again from what is stored.
            log.error("commit failed, loading again: %s", error)
            _fail(answers, Degraded(f"nothing was changed: {error}"))
            self.ready.clear()
            self.world.problems["store"] = str(error)
            return None
        if turn.writes.policy is not None:
            self._compare_policy()
        self._answer(answers, turn)
        self.journal.add(turn.writes.entries)
        for duty in turn.duties:
            self._start(self._hands.perform(duty), f"{duty.act} {duty.key}")
        return turn.next

    def _answer(self, answers: Sequence[asyncio.Future[i.Answer]], turn: Turn) -> None:
        for future, answer in zip(answers, turn.answers, strict=True):
            if not future.done():
                future.set_result(answer)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        self.ready.clear()
        await self._hands.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._in_thread(self.setup.store.close)
        self._thread.shutdown()

    # --- the store ----------------------------------------------------------------------

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: call(*args, **kwargs))

    async def _read(self, after: int, limit: int) -> Sequence[Entry]:
        return await self._in_thread(self.setup.store.entries, after, limit)

    async def _launch_row(self, job: JobId) -> LaunchRow | None:
        """Those that are asked for together are read together."""
        first = not self._unread
        row = self._unread[job] = self._unread.get(job) or asyncio.Future()
        if first:
            self._start(self._read_launches(), "launches")
        return await row

    async def _read_launches(self) -> None:
        await asyncio.sleep(0)  # all who were told in this turn have asked by then
        wanted, self._unread = self._unread, {}
        try:
            found = await self._in_thread(self.setup.store.launches, [*wanted])
        except Exception as error:  # raised to each who asked
            for row in wanted.values():
                if not row.done():
                    row.set_exception(error)
            return
        for job, row in wanted.items():
            if not row.done():
                row.set_result(found.get(job))


def _same(one: Policy, other: Policy) -> bool:
    """Whether they say the same; in which order the classes and groups stand counts too."""
    orders = [(list(each.classes), list(each.groups)) for each in (one, other)]
    return orders[0] == orders[1] and replace(one, revision=0) == replace(other, revision=0)


def _fail(answers: Sequence[asyncio.Future[i.Answer]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_result(i.Answer(error=error))


def _nothing() -> Loaded:
    """What there is before a store is open."""
    return Loaded(
        jobs=(),
        seq=0,
        usage=(),
        quarantined=(),
        policy=None,
        submits={},
        servers={},
        drained={},
        broker_id="",
    )
