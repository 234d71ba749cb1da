# SPDX-License-Identifier: BSD-3-Clause
"""The policy document (``policy.yaml``) -> the core's frozen Policy.

Unknown keys are refused; every error names the line, the key and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from .core.amounts import parse_duration
from .core.model import Class, Kind, PlacementRule, Policy, Queue, Refusal, RemovedUsers, Terms

DOCUMENT_MAX = 2**16
"""Characters of a policy: every user may have one checked, and YAML is slow to read."""
DEPTH_MAX = 16
"""Levels of nesting; a policy has four."""


def _seconds(value: object) -> object:
    try:
        return parse_duration(value)
    except Refusal as refusal:
        raise ValueError(f"{refusal.message} ({refusal.remedy})") from None


def _seconds_or_zero(value: object) -> object:
    return 0.0 if str(value).strip() in ("0", "0s") else _seconds(value)


Name = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Of a class or a queue: people type it, and it stands in lists and on command lines."""
Time = Annotated[float, BeforeValidator(_seconds)]
TimeOrZero = Annotated[float, BeforeValidator(_seconds_or_zero)]


class _Strict(BaseModel):
    # The docstrings of keys are the reference of the policy.
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class TimeLimits(_Strict):
    """``time``: how long a lease may last."""

    default: Time
    """Time of a request that names none."""
    max: Time
    """The most that can be asked for, extensions included."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.default > self.max:
            raise ValueError("default must not be above max")
        return self


class IdleTimes(_Strict):
    """``idle``: when a session is reclaimable, as soon as somebody waits."""

    after: Time
    """All kernels and terminals quiet for so long."""
    busy: Time
    """A cell, or a program that a kernel or a terminal started, runs for so long. Only where
    it goes on while the session is parked; elsewhere what runs is never idle."""


class KeepTimes(_Strict):
    """``keep``: what the Keep button gives, and how often."""

    for_: Time = Field(alias="for")
    """How long one Keep keeps the session from being taken."""
    times: int = Field(ge=0, le=100)
    """How many a session has."""


class ClassDoc(_Strict):
    """One class of ``classes``."""

    kinds: tuple[Kind, ...] = Field(min_length=1)
    """What it is for: ``session``, ``batch``, or both."""
    priority: int = 0
    """Higher ones go first in the queue. Nobody is asked to leave because of it."""
    time: TimeLimits
    idle: IdleTimes = IdleTimes(after=600.0, busy=1800.0)
    shield: TimeOrZero = 600.0
    """So long after it got its GPUs a session is not asked to leave for another."""
    grace: Time = 60.0
    """From the notice until a session has to leave."""
    stop: Time = 30.0
    """From asking processes to end, as at the time limit of a job, to killing them."""
    fence: Time = 120.0
    """From killing them to giving up: then their GPUs are quarantined."""
    start: Time = 120.0
    """A start that takes longer is taken back."""
    keep: KeepTimes = KeepTimes(**{"for": 900.0, "times": 2})
    parked: Time = 12 * 3600.0
    """What a parked session kept is deleted after so long."""
    holder_grace: Time = 300.0
    """A server that died may come back so long and finds its session."""
    max_wait: Time | None = None
    """A job that waits longer fails; what is parked stays parked."""
    restarts: int = Field(3, ge=0, le=1000)
    """After failures or a lost machine; a job may ask for another number."""
    waiting: int | None = Field(None, ge=1)
    """Of each user at once; one more is refused."""
    running: int | None = Field(None, ge=1)
    """Of each user at once; more wait."""

    def to_class(self, name: str) -> Class:
        """The core's class."""
        terms = Terms(
            grace=self.grace,
            stop=self.stop,
            fence=self.fence,
            start=self.start,
            shield=self.shield,
            keep=self.keep.for_,
            keeps=self.keep.times,
            kept_for=self.parked,
            holder_grace=self.holder_grace,
            max_wait=self.max_wait,
            max_restarts=self.restarts,
        )
        return Class(
            name=name,
            kinds=self.kinds,
            priority=self.priority,
            time_default=self.time.default,
            time_max=self.time.max,
            idle=self.idle.after,
            idle_busy=self.idle.busy,
            waiting=self.waiting,
            running=self.running,
            terms=terms,
        )


class QueueDoc(_Strict):
    """One queue of ``queues``."""

    running_gpus: int | None = Field(None, ge=1)
    """GPUs that all its jobs have at once; more wait."""
    shares: int = Field(1, ge=1, le=1_000_000)
    """Its part of the GPU time, beside those of the other queues, while all have jobs."""
    users: dict[str, Annotated[int, Field(ge=1, le=1_000_000)]] = {}
    """The parts of its users, by name; a user that is not named has 1."""

    def to_queue(self, name: str) -> Queue:
        """The core's queue."""
        return Queue(name, self.running_gpus, self.shares, dict(self.users))


class PolicyDoc(_Strict):
    """The whole document."""

    default_queue: str = "default"
    """Where jobs go that name no queue."""
    placement: PlacementRule = PlacementRule.FRAGMENTATION
    """Which of the GPUs that fit: those that leave the most useful rest, or the fullest."""
    half_life: Time = 7 * 86400.0
    """After so long, GPU time that somebody used counts half when the queue is ordered."""
    removed_users: RemovedUsers = RemovedUsers.FINISH
    """What becomes of the running jobs of users who were removed from the Hub: they finish, or
    they are cancelled. What such a user waits for is cancelled, and their sessions end."""
    classes: dict[Name, ClassDoc] = Field(min_length=1)
    """Terms by name. What names no class gets the first one of its kind."""
    queues: dict[Name, QueueDoc] = Field(min_length=1)
    """Queues by name."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.default_queue not in self.queues:
            raise ValueError(f"default_queue {self.default_queue!r} is not one of queues")
        for kind in Kind:
            if not any(kind in doc.kinds for doc in self.classes.values()):
                raise ValueError(f"no class of classes has kind {kind.value}")
        return self


DEFAULT_DOCUMENT = """\
# Policy of jupyter-gpubroker. Durations: 90s 10m 2h 1-12:00:00.
# Check with `jupyter gpubroker policy check FILE`, apply with `policy apply FILE`.
default_queue: default
placement: fragmentation    # or best-fit
half_life: 7d               # decay of the usage that fair share looks at

classes:
  interactive:              # notebooks
    kinds: [session]
    time: {default: 2h, max: 8h}
    idle: {after: 10m, busy: 30m}   # reclaimable when somebody waits: all kernels idle / one busy
    shield: 10m             # not reclaimable so soon after a grant
    grace: 120s             # from the notice until the GPU is taken
    stop: 30s               # from asking to killing
    keep: {for: 15m, times: 2}      # the Keep button
    parked: 12h             # how long a parked session is kept
    holder_grace: 5m        # a server that died may come back
    waiting: 5              # per user
    running: 2              # per user
  batch:                    # training jobs
    kinds: [batch]
    time: {default: 1h, max: 7d}
    shield: 10m
    grace: 60s
    stop: 30s
    restarts: 3
    waiting: 200

queues:
  default: {}
"""


def _line(node: Any, path: tuple[int | str, ...]) -> int | None:
    """Line (from 1) of the deepest part of ``path`` that exists in a round-trip node."""
    line: int | None = None
    for part in path:
        try:
            mapping = hasattr(node, "keys")
            line = int(node.lc.key(part)[0] if mapping else node.lc.line) + 1
            node = node[part]
        except (AttributeError, KeyError, TypeError, IndexError):
            break
    return line


def _refusal(error: ValidationError, document: Any) -> Refusal:
    found = error.errors()
    first = next((item for item in found if item["type"] == "extra_forbidden"), found[0])
    path = tuple(part for part in first["loc"])
    name = ".".join(str(part) for part in path) or "policy"
    line = _line(document, path)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "unknown key"
    more = f"; {error.error_count() - 1} more" if error.error_count() > 1 else ""
    where = f" at line {line}" if line is not None else ""
    return Refusal(name, f"{message}{where}{more}", _known(path) if "unknown" in message else "")


_MODELS: Mapping[str, type[_Strict]] = {"classes": ClassDoc, "queues": QueueDoc}
_NESTED: Mapping[str, type[_Strict]] = {"time": TimeLimits, "idle": IdleTimes, "keep": KeepTimes}


def _known(path: tuple[int | str, ...]) -> str:
    """The keys that would be right where an unknown one stands."""
    model: type[_Strict] = PolicyDoc
    if len(path) > 2:
        model = _MODELS.get(str(path[0]), PolicyDoc)
    if len(path) > 3:
        model = _NESTED.get(str(path[2]), model)
    keys = (field.alias or name for name, field in model.model_fields.items())
    return "known keys: " + ", ".join(sorted(keys))


def _load(text: str) -> Any:
    """What the text holds. It may come from anybody: a small one must not unfold into a huge
    one, and one that is no YAML in any way is refused, whatever the parser thinks of it."""
    if len(text) > DOCUMENT_MAX:
        raise Refusal("policy", f"must not be longer than {DOCUMENT_MAX} characters")
    try:
        _check_shape(text)
        return YAML(typ="rt").load(StringIO(text))
    except Refusal:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise Refusal("policy", f"not YAML{where}: {error.problem}") from None
    except (YAMLError, ValueError) as error:
        lines = str(error).splitlines() or ["it cannot be read"]
        raise Refusal("policy", f"not YAML: {lines[0]}") from None


def _check_shape(text: str) -> None:
    depth = 0
    for event in YAML(typ="rt", pure=True).parse(StringIO(text)):
        depth += isinstance(event, CollectionStartEvent)
        depth -= isinstance(event, CollectionEndEvent)
        line = event.start_mark.line + 1
        if depth > DEPTH_MAX:
            raise Refusal("policy", f"is nested too deeply at line {line}")
        if isinstance(event, AliasEvent):
            raise Refusal("policy", f"has an alias at line {line}", "write out what * stands for")


def parse(text: str, revision: int = 0) -> Policy:
    """The Policy of a YAML document; Refusal naming line, key and remedy."""
    document = _load(text)
    if not isinstance(document, Mapping):
        raise Refusal("policy", "must be a mapping", "start from the shipped policy.yaml")
    try:
        doc = PolicyDoc.model_validate(document)
    except ValidationError as error:
        raise _refusal(error, document) from None
    return Policy(
        classes={name: item.to_class(name) for name, item in doc.classes.items()},
        queues={name: item.to_queue(name) for name, item in doc.queues.items()},
        default_queue=doc.default_queue,
        revision=revision,
        placement=doc.placement,
        half_life=doc.half_life,
        removed_users=doc.removed_users,
    )


def default() -> Policy:
    """The Policy of ``DEFAULT_DOCUMENT``."""
    return parse(DEFAULT_DOCUMENT)
