# SPDX-License-Identifier: BSD-3-Clause
"""The Job, its terms and its invariants."""

from __future__ import annotations

from dataclasses import dataclass, field

from .values import (
    LEASED,
    LEAVING,
    TERMINAL,
    Binding,
    Holder,
    JobId,
    Kept,
    Key,
    Kind,
    Lease,
    Notice,
    Reason,
    Request,
    Reservation,
    Rung,
    Seconds,
    Stage,
    StageName,
    State,
)


@dataclass(frozen=True, slots=True)
class Terms:
    """The times and budgets of a Job, copied from its class so that ``advance`` is pure."""

    grace: Seconds = 60.0
    stop: Seconds = 30.0
    """From asking to killing."""
    fence: Seconds = 120.0
    start: Seconds = 120.0
    """How long STARTING may last."""
    park: tuple[tuple[StageName, Seconds], ...] = ()
    """The parking ladder of this lease, best rung first; empty = not parkable."""
    shield: Seconds = 600.0
    keep: Seconds = 900.0
    keeps: int = 2
    kept_for: Seconds = 12 * 3600.0
    holder_grace: Seconds = 300.0
    affinity_wait: Seconds = 600.0
    """After so long in the queue a session whose GPU memory is parked is told how to go on
    elsewhere."""
    hold: Seconds = 30 * 86400.0
    max_wait: Seconds | None = None
    max_restarts: int = 3
    max_start_failures: int = 5
    avoid: Seconds = 300.0
    """A node that refused a start is not tried again for this long."""


@dataclass(frozen=True, slots=True)
class Job:
    """The unit of admission. Only ``core.lifecycle.advance`` makes the next one."""

    id: JobId
    kind: Kind
    user: str
    queue: str
    class_name: str
    request: Request
    name: str = ""
    terms: Terms = field(default_factory=Terms)
    state: State = State.QUEUED
    since: Seconds = 0.0
    """When it entered its state."""
    submitted: Seconds = 0.0
    eligible: Seconds = 0.0
    """Age counts from here."""
    until: Seconds | None = None
    """Deadline of HELD, QUEUED, STARTING, PARKED and of the current stage; see ``deadline``."""
    reserved: Reservation | None = None
    """While it is QUEUED: what was promised to it, or is kept free."""
    lease: Lease | None = None
    notice: Notice | None = None
    stages: tuple[Stage, ...] = ()
    """Stages of STOPPING still to come; the first is the current one."""
    attempt: int = 0
    restarts: int = 0
    start_failures: int = 0
    preemptions: int = 0
    avoid: tuple[tuple[str, Seconds], ...] = ()
    """Nodes not to be tried until that time."""
    served: Seconds = 0.0
    """Leased seconds of this request in leases that ended; the time limit counts them."""
    extended: Seconds = 0.0
    """What extensions added to the time limit of this request."""
    gpu_seconds: float = 0.0
    shield_until: Seconds = 0.0
    keeps_used: int = 0
    # -- sessions
    server: str = ""
    """``user/server name``: the key of a session."""
    incarnation: int = 0
    """Which start of the server the session belongs to."""
    attach: bool = False
    """Placed only after its server said hello."""
    binding: Binding = Binding.KERNEL
    holder: Holder | None = None
    prepared: bool = False
    """The engine granted the lease on its host and restored what was parked."""
    started_attempt: int = 0
    """The last attempt that was acknowledged by Started."""
    kept: tuple[Kept, ...] = ()
    parked_for: Reason | None = None
    # -- batch
    complete: bool = False
    """The program marked its work as done; a later signal changes nothing."""
    torchrun: bool = False
    requeue: bool = True
    exit_zero_done: bool = False
    checkpoint: int | None = None
    """Last step the program said it saved."""
    checkpoint_at_start: int | None = None
    saved_at: Seconds | None = None
    """When it said last that it saved a step; ``None`` = it never did."""
    left_for: tuple[JobId, ...] = ()
    """Batch Jobs that it had to leave for; it never takes from them. The last ``LEFT_FOR_MAX``."""
    code: int | None = None
    failed_rank: int | None = None
    outcome: str = ""
    """How and why it ended, for people."""

    @property
    def key(self) -> Key:
        """The engine's key of the current attempt."""
        return Key(self.id, self.attempt)

    @property
    def deadline(self) -> Seconds | None:
        """When the broker has to send ``Deadline``; ``None`` in terminal states."""
        match self.state:
            case State.RUNNING:
                assert self.lease is not None
                return self.lease.expires
            case State.DRAINING:
                assert self.lease is not None
                assert self.notice is not None
                return min(self.notice.deadline, self.lease.expires)
            case _:
                return self.until

    def remaining(self, default: Seconds) -> Seconds:
        """How long its next Lease may last; ``default`` = the time of its class."""
        return max(1.0, (self.request.time_limit or default) + self.extended - self.served)

    @property
    def rung(self) -> Rung | None:
        """The worst rung of what is kept; ``None`` if nothing is parked."""
        return max((kept.rung for kept in self.kept), key=lambda r: r.loss, default=None)


def check(job: Job) -> Job:
    """Return the Job unchanged if its invariants hold (DESIGN §6); AssertionError if not."""
    leased, leaving = job.state in LEASED, job.state in LEAVING
    assert (job.lease is not None) == leased, job
    assert (job.notice is not None) == leaving, job
    assert bool(job.stages) == (job.state is State.STOPPING), job
    assert (job.deadline is None) <= (job.state in TERMINAL or job.state is State.QUEUED), job
    assert job.reserved is None or job.state is State.QUEUED, job
    if job.kept:
        assert job.kind is Kind.SESSION, job
        assert job.state in (State.PARKED, State.QUEUED, State.STARTING, State.STOPPING), job
    if job.state is State.PARKED:
        assert job.kind is Kind.SESSION, job
        assert job.kept, job
        assert job.parked_for is not None, job
    if job.lease is not None:
        assert job.lease.attempt == job.attempt, job
    return job
