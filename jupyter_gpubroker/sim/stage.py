# SPDX-License-Identifier: BSD-3-Clause
"""The shell around the production broker, in virtual time (what ``app.shell`` and
``app.hands`` are in real time), with the faults that a seed says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from math import inf, nextafter
from random import Random

from .. import policy as policies
from ..broker import Broker, Turn
from ..broker import inputs as i
from ..broker.world import World
from ..core.model import LEASED, Holder, Job, JobId, Kind, Mode, Policy, Seconds, State
from ..engines import RestoreRefused, StartRefused
from ..store import Entry
from ..store.memory import Data, MemoryStore
from .agenda import LOOK, TURN, Action
from .engine import Engine
from .faults import NONE, Fate, Faults, Unanswered, fate

Then = Callable[[i.Answer], None]
Check = Callable[["Stage", Turn], None]

HOST = "sim"
"""Where all servers run: of these the engine sees whether they live."""
IN_PLACE_MAX = 200
"""Turns at one instant; a broker that wants more runs in a circle."""


class Stage:
    """One broker with its store and its engine.

    ``send`` and ``tell`` put something into its inbox; everything of one instant is one turn."""

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        *,
        faults: Faults = NONE,
        seed: int = 0,
        check: Check | None = None,
    ) -> None:
        self.engine, self.agenda, self.policy = engine, engine.agenda, policy
        self.faults, self.random, self.check = faults, Random(seed), check  # noqa: S311 - no secret
        self.store = MemoryStore(Data(broker_id="sim"))
        self.booted: list[Action] = []
        """Who is told that a broker has come up."""
        self.reporters: dict[str, Action] = {}
        """Servers that are asked before each turn for what they have to say."""
        self.living: dict[Holder, bool] = {}
        """Processes of servers that live."""
        self.pids = 1000
        self.call_s: Seconds = 0.1
        """How long a call to the engine takes."""
        self.attach_s: Seconds = 0.0
        """How long it takes to give a session its GPUs."""
        self.moving_s: Seconds | None = 1.0
        """Pause between two looks while something starts or leaves; ``None`` = only when the
        engine has news."""
        self.calm_s: Seconds | None = 30.0
        self.watches = False
        """After the first look at everything the engine only tells what has changed."""
        self.turns = 0
        self.up = False
        self._offset: Seconds = 0.0
        self._ids = 0
        self._life = 0
        self._inbox: list[tuple[i.Input, Then | None]] = []
        self._followers: dict[str, list[Action]] = {}
        self._wake: Seconds | None = None
        self._look_at: Seconds | None = None
        self._in_place = (0.0, 0)
        engine.changed = self.look
        self.boot()

    # --- what others do -------------------------------------------------------------------

    @property
    def world(self) -> World:
        """What the broker knows; read only."""
        return self.broker.world

    @property
    def now(self) -> Seconds:
        """The time as the broker's clock has it."""
        return self.agenda.now + self._offset

    def send(self, question: i.Question, then: Then | None = None) -> None:
        """Ask; ``then`` gets the answer, Unanswered if none comes."""
        if not self.up or self.happens(self.faults.message):
            if then is not None:
                self.agenda.after(0.0, lambda: then(i.Answer(error=Unanswered())))
            return
        self._inbox.append((question, then))
        self.wake(self.agenda.now)

    def tell(self, fact: i.Fact) -> None:
        """News that nobody waits for; a broker that is down does not hear it."""
        if self.up:
            self._inbox.append((fact, None))
            self.wake(self.agenda.now)

    def ask(self, question: i.Question) -> Job | None:
        """Ask, let happen what happens at this instant, and return the answer or raise it."""
        return self._asked(question).job

    def ask_all(self, question: i.SubmitList) -> Sequence[Job]:
        """The same, for several Jobs."""
        return self._asked(question).jobs

    def _asked(self, question: i.Question) -> i.Answer:
        answers: list[i.Answer] = []
        self.send(question, answers.append)
        self.agenda.run(self.agenda.now)
        if answers[0].error is not None:
            raise answers[0].error
        return answers[0]

    def run(self, seconds: Seconds) -> None:
        """Let virtual time pass."""
        self.agenda.run(self.agenda.now + seconds)

    def follow(self, user: str, do: Action) -> None:
        """Be called whenever something about this user's work was committed, as by the event
        stream."""
        self._followers.setdefault(user, []).append(do)

    def happens(self, probability: float) -> bool:
        """Draw."""
        return probability > 0 and self.random.random() < probability

    def wake(self, at: Seconds) -> None:
        """Take a turn then, at the latest."""
        at = max(at, self.agenda.now)
        if self._wake is None or at < self._wake:
            self._wake = at
            self.agenda.at(at, self._due, TURN)

    # --- the life of the broker -----------------------------------------------------------

    def boot(self) -> None:
        """A broker comes up from what is stored, and looks at its machines first."""
        self.up = True
        self._life += 1
        self._inbox, self._wake, self._look_at = [], None, None
        loaded = self.store.open()
        policy = self.policy
        if loaded.policy is not None:
            policy = _parsed(loaded.policy.document, loaded.policy.revision)
        world = World.of(loaded, policy, self.now)
        self.broker = Broker(world, {self.engine.name: self.engine.ladder}, self._new_id)
        self.tell(i.NodesSeen(self.engine.name, self.engine.nodes()))
        self.look()
        for do in self.booted:
            do()

    def crash(self) -> None:
        """The broker is killed; another comes up after a while, with the clock as it is then."""
        asked = [then for _, then in self._inbox if then is not None]
        self._inbox, self.up = [], False
        for then in asked:
            then(i.Answer(error=Unanswered()))
        self._offset += self.random.uniform(-self.faults.clock, self.faults.clock)
        self.agenda.after(self.random.uniform(0, self.faults.down), self.boot)

    def _new_id(self, kind: Kind) -> JobId:
        self._ids += 1
        return f"{'b' if kind is Kind.BATCH else 's'}-{self._ids}"

    # --- a turn ---------------------------------------------------------------------------

    def _due(self) -> None:
        if self.up and self._wake is not None and self.agenda.now >= self._wake:
            self._wake = None
            self._turn()

    def _turn(self) -> None:
        self._count(any(isinstance(item, i.Question) for item, _ in self._inbox))
        for report in tuple(self.reporters.values()):
            report()
        self._wake = None
        news = self._inbox
        turn = self._committed(news)
        if turn is None:
            self.crash()
            return
        self._inbox = []
        self._answer([then for item, then in news if isinstance(item, i.Question)], turn)
        self._perform(turn.duties)
        self._publish(turn.writes.entries)
        if turn.next is not None:
            self.wake(self._when(turn.next))

    def _committed(self, news: Sequence[tuple[i.Input, Then | None]]) -> Turn | None:
        """Decide and commit; ``None`` if the broker does not live to act on it."""
        if self.happens(self.faults.crash):
            return None
        turn = self.broker.turn([item for item, _ in news], self.now)
        if self.happens(self.faults.crash):
            return None
        failed = bool(turn.writes) and self.happens(self.faults.commit)
        if not failed or self.happens(0.5):
            if turn.writes:
                self.store.commit(turn.writes)
            if self.check is not None:
                self.check(self, turn)
        return None if failed or self.happens(self.faults.crash) else turn

    def _count(self, asked: bool) -> None:
        self.turns += 1
        time, count = self._in_place
        again = time == self.agenda.now and not asked
        self._in_place = (self.agenda.now, count + 1 if again else 1)
        assert self._in_place[1] < IN_PLACE_MAX, "the broker takes turns without end"

    def _answer(self, asked: Sequence[Then | None], turn: Turn) -> None:
        for then, answer in zip(asked, turn.answers, strict=True):
            if then is not None:
                then(answer)

    def _when(self, told: Seconds) -> Seconds:
        """When the broker's clock shows that time, or just after."""
        at = told - self._offset
        while at + self._offset < told:  # the sum may be rounded down
            at = nextafter(at, inf)
        return at

    def _publish(self, entries: Sequence[Entry]) -> None:
        for user in dict.fromkeys(entry.user for entry in entries):
            for follow in self._followers.get(user, ()):
                follow()

    # --- duties ---------------------------------------------------------------------------

    def _perform(self, duties: Sequence[i.Duty]) -> None:
        for duty in duties:
            if self.up and self.happens(self.faults.crash):
                self.crash()
            if not self.up:
                return
            self._call(duty)

    def _call(self, duty: i.Duty) -> None:
        life = self._life
        drawn = fate(self.faults, self.random, start=duty.act is i.Act.START)
        slow = self.attach_s if duty.act is i.Act.START and duty.mode is Mode.HELD else 0.0
        takes = self.call_s + slow
        late = self.random.uniform(0, self.faults.late) if self.faults.call else 0.0

        def done(did: i.Did, text: str = "", node: str = "") -> None:
            if life == self._life:
                self.tell(i.DutyDone(duty, did, text, node))
                self.look()

        def do() -> None:
            done(*self._do(duty, drawn))

        if drawn is Fate.TWICE:
            self.agenda.after(takes + late, lambda: self._again(duty))
        self.agenda.after(takes + (late if drawn is Fate.LATE else 0.0), do)

    def _do(self, duty: i.Duty, drawn: Fate) -> tuple[i.Did, str, str]:
        match drawn:
            case Fate.FAILS:
                return i.Did.FAILED, "the engine could not", ""
            case Fate.LOST:
                return i.Did.DONE, "", ""
            case Fate.REFUSED if self.engine.refuse(duty.key):
                return i.Did.REFUSED, "the engine would not", duty.placement[0].node
        try:
            self._effect(duty)
        except StartRefused as refused:
            return i.Did.REFUSED, refused.text, refused.node
        except RestoreRefused as refused:
            return i.Did.RESTORE_REFUSED, str(refused), ""
        return (i.Did.FAILED if drawn is Fate.UNHEARD else i.Did.DONE), "", ""

    def _again(self, duty: i.Duty) -> None:
        with suppress(StartRefused, RestoreRefused):  # nobody hears it
            self._effect(duty)

    def _effect(self, duty: i.Duty) -> None:
        match duty.act:
            case i.Act.START:
                self.engine.start(duty.key, duty)
            case i.Act.FORGET:
                self.engine.forget(duty.key)
            case i.Act.DROP:
                for kept in duty.kept:
                    self.engine.drop(kept)
            case _:
                self.engine.stop(duty.key, duty.act)

    # --- looking --------------------------------------------------------------------------

    def look(self) -> None:
        """Look at the engine at this instant, when everything of it has happened."""
        self._look_by(self.agenda.now)

    def _look_by(self, at: Seconds) -> None:
        if self._look_at is None or at < self._look_at:
            self._look_at = at
            self.agenda.at(at, self._look, LOOK)

    def _look(self) -> None:
        if not self.up or self._look_at is None or self.agenda.now < self._look_at:
            return
        self._look_at = None
        late = 0.0
        if self.happens(self.faults.look):
            late = self.random.uniform(0, self.faults.old)
        seen = self._seen()
        if late:
            life = self._life
            self.agenda.after(late, lambda: self._tell_if(life, seen))
        else:
            self._tell_if(self._life, seen)
        pause = self.calm_s if self.watches or not self._is_moving() else self.moving_s
        if pause is not None:
            self._look_by(self.agenda.now + pause)

    def _seen(self) -> list[i.Fact]:
        if self.watches and self.world.nodes:
            told = self.engine.watch()
            return [i.ReportsSeen(self.engine.name, told)] if told else []
        if self.happens(self.faults.look):
            return [i.EngineDown(self.engine.name, "it does not answer")]
        held = dict.fromkeys(job.holder for job in self.world.living())
        dead = [item for item in held if item and item.host == HOST and item not in self.living]
        poll = self.engine.poll(self.now)
        return [
            i.NodesSeen(self.engine.name, self.engine.nodes()),
            i.PollSeen(self.engine.name, poll, dead),
        ]

    def _tell_if(self, life: int, facts: Sequence[i.Fact]) -> None:
        if life == self._life:
            for fact in facts:
                self.tell(fact)

    def _is_moving(self) -> bool:
        alive = self.world.alive.values()
        return any(job.state in LEASED and job.state is not State.RUNNING for job in alive)


@cache
def _parsed(document: str, revision: int) -> Policy:
    return policies.parse(document, revision)
