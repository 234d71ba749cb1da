# SPDX-License-Identifier: BSD-3-Clause
"""Everything that can happen to a Job.

Three kinds: *facts* (an engine, a host or a server saw something; late ones are
ignored), *verbs* (a person or the Hub asks; refused with ``Conflict`` where the
state does not allow them), and *decisions* (the broker itself).
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import Holder, Kept, Lease, Notice, Reason, Reservation, Seconds, Terms


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; the base of all events."""


@dataclass(frozen=True, slots=True)
class Fact(Event):
    """Seen, not asked for. A fact that no row expects is ignored and journaled."""


@dataclass(frozen=True, slots=True)
class AttemptFact(Fact):
    """A fact about one attempt; another attempt's fact never changes the Job."""

    attempt: int


# --- decisions ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place(Event):
    """The Plan grants a Lease (its attempt is the Job's next one)."""

    lease: Lease
    terms: Terms
    start: Seconds
    """How long STARTING may last."""


@dataclass(frozen=True, slots=True)
class Reserve(Event):
    """The Plan keeps this free for the Job, or nothing any more."""

    reservation: Reservation | None


@dataclass(frozen=True, slots=True)
class Notify(Event):
    """The Job has to leave."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Reprieve(Event):
    """Nobody needs the GPUs of this notice any more."""


@dataclass(frozen=True, slots=True)
class NoRoom(Event):
    """Its GPU memory does not fit in what is left of the host memory for what is parked."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Deadline(Event):
    """The Job's deadline passed."""


@dataclass(frozen=True, slots=True)
class Retune(Event):
    """A policy reload: new terms; what was fixed at grant stays."""

    terms: Terms


# --- facts --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepared(AttemptFact):
    """A held lease is granted on its host and what was parked is restored."""


@dataclass(frozen=True, slots=True)
class Started(AttemptFact):
    """Processes run (hosted), or the holder bound its kernels (held)."""

    holder: Holder | None = None


@dataclass(frozen=True, slots=True)
class Refused(AttemptFact):
    """The engine did not start it: nothing ever ran."""

    node: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Exited(AttemptFact):
    """All processes of the attempt are proven gone."""

    code: int
    rank: int | None = None
    """First failing rank."""
    all_zero: bool = False
    """Every part (torchrun agent) gave 0."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Freed(AttemptFact):
    """The GPUs are proven free; processes may live on, parked."""

    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True)
class Lost(AttemptFact):
    """A part or its node is lost; the other parts must stop."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class RestoreFailed(AttemptFact):
    """What was parked could not be restored here; it is still kept."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Active(Fact):
    """The session is in use."""


@dataclass(frozen=True, slots=True)
class Hello(Fact):
    """The server's extension is up; it is the holder now."""

    holder: Holder
    incarnation: int


@dataclass(frozen=True, slots=True)
class HolderGone(Fact):
    """Proof that the holding server is gone."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class KeptLost(Fact):
    """What a parked session kept is gone (reboot, killed process): these remain."""

    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True)
class Mark(Fact):
    """The program said something: work complete, or a checkpoint saved at a step."""

    complete: bool = False
    step: int | None = None


# --- verbs --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verb(Event):
    """Asked by a person or the Hub."""


@dataclass(frozen=True, slots=True)
class Cancel(Verb):
    """Stop it and forget what it kept."""

    text: str = ""
    """The outcome of a Job that waits, where that is more than *cancelled*."""


@dataclass(frozen=True, slots=True)
class Hold(Verb):
    """A waiting batch Job steps out of the queue."""


@dataclass(frozen=True, slots=True)
class Unhold(Verb):
    """A held Job becomes eligible."""


@dataclass(frozen=True, slots=True)
class Withdraw(Verb):
    """A spawn that waits is cancelled."""

    text: str = ""
    """The outcome, where that is more than *cancelled*."""


@dataclass(frozen=True, slots=True)
class Release(Verb):
    """The session is over; its GPUs go back, nothing is kept."""


@dataclass(frozen=True, slots=True)
class Park(Verb):
    """Give the GPUs back and keep the state."""

    reason: Reason = Reason.USER


@dataclass(frozen=True, slots=True)
class Resume(Verb):
    """Queue a parked session to get its GPUs back."""

    person: bool = True
    """False: a cell ran; that does not resume a session parked at its time limit."""


@dataclass(frozen=True, slots=True)
class Keep(Verb):
    """*I still need it*: bounded by the class."""


@dataclass(frozen=True, slots=True)
class Extend(Verb):
    """More leased time; the broker checked that it harms nobody."""

    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Adopt(Verb):
    """A new start of the server takes over the session it finds."""

    incarnation: int
    attach: bool


@dataclass(frozen=True, slots=True)
class Force(Verb):
    """Admin: end it now; held Shares are quarantined until proof."""


# --- effects ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Effect:
    """What a transition did beyond the Job itself."""


@dataclass(frozen=True, slots=True)
class Released(Effect):
    """A Lease ended; its use is charged."""

    lease: Lease
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Quarantine(Effect):
    """The Lease ended without proof that its GPUs are free."""

    lease: Lease
