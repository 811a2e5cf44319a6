"""Results of the analysis: of one process, and of a whole job. Values only; they go to JSON and
back.

Nothing here needs numpy, so that programs can merge or show results without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, Self, TypeVar, get_args, get_origin, get_type_hints

SCHEMA = "dlq.profile.v1"


class Method(StrEnum):
    EXACT = "framework"  # its own list of parameters
    NCCL = "nccl-api"  # counts and types of NCCL's calls
    SLOTS = "gloo-slots"  # gloo's preambles
    ADDRESSES = "address-recurrence"  # addresses that recur
    MESSAGES = "messages"  # every message is a tensor
    NONE = "none"


class TrafficConfidence(StrEnum):
    EXACT = "exact"  # reported by the framework
    CHECKED = "checked"  # two independent ways agree
    ASSUMED = "assumed"  # follows if the job does what jobs of its kind usually do
    UNKNOWN = "unknown"


class TrafficReason(StrEnum):
    NOTHING_RECORDED = "nothing-recorded"
    NO_TRAFFIC = "no-traffic"
    TOO_FEW_ITERATIONS = "too-few-iterations"
    NOT_PERIODIC = "not-periodic"
    SELF_CHECK = "self-check"
    RECORDS_LOST = "records-lost"
    BYPASS = "bypass"
    GRAPH = "cuda-graph"
    RANKS_UNKNOWN = "ranks-unknown"
    NOT_TENSORS = "messages-are-not-tensors"
    # An agent's knowledge of a program that it starts, or of its own host.
    STATIC = "static"
    SETUID = "setuid"
    GO = "go"
    IO_URING = "io-uring"
    OTHER_MACHINE = "other-machine"
    NOT_A_PROGRAM = "not-a-program"
    NOT_FOUND = "not-found"
    UNREADABLE = "unreadable"
    PLUGIN_TAKEN = "plugin-taken"
    PLUGIN_OFF = "plugin-off"
    NO_LIBRARY = "no-library"
    UNREACHABLE = "library-unreachable"
    SWITCHED_OFF = "switched-off"
    NO_DIRECTORY = "no-directory"
    NO_NUMPY = "no-numpy"
    FAILED = "analysis-failed"
    TOO_MANY = "too-many-processes"
    # A master's knowledge.
    NOT_TOLD = "not-told"


class Pattern(StrEnum):
    ALL_REDUCE = "all-reduce"
    PARAMETER_SERVER = "parameter-server"
    OTHER = "other"


class Interval(NamedTuple):
    """A value lies in it, both ends included."""

    lower: float
    upper: float


class PeerTraffic(NamedTuple):
    """The traffic to one other end. `side`: 1 connected, 2 accepted, 0 unknown."""

    peer: str
    side: int
    sent_bytes: float  # per iteration
    messages: int  # per iteration


class Tensors(NamedTuple):
    """The framework's report of one model: bytes of each parameter that has a gradient."""

    sizes: tuple[int, ...]
    bucket_cap_bytes: int
    first_bucket_bytes: int


class TrafficVerdict(NamedTuple):
    """How something was found, how sure it is, and why it is not known, if it is not."""

    method: Method
    confidence: TrafficConfidence
    reason: TrafficReason | None = None

    @property
    def known(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessProfile:
    """One process. Bytes and times are those of an iteration in steady state.

    `buffers`: bytes of each communication buffer, by recurring addresses. `buckets`: bytes of each
    all-reduce in the order of issue, as the protocol tells. `messages`: bytes of each message.
    `coverage`: the part of its sent bytes meanwhile that `sent_bytes` explains. `phases`: bytes in
    each of equal parts of an iteration.
    """

    pid: int
    start_ticks: int
    comm: str
    rank: int | None
    world_size: int | None
    role: str  # of a parameter-server job, by its environment; empty: unset
    method: Method
    reason: TrafficReason | None = None
    iterations: int = 0  # that were seen
    period_s: float = 0.0  # mean; pauses of several iterations are left out
    jitter: float = 0.0  # interquartile range of the iterations' times over their median
    sent_bytes: float = 0.0
    coverage: float = 0.0
    buffers: tuple[int, ...] = ()
    buckets: tuple[int, ...] = ()
    messages: tuple[int, ...] = ()
    phases: tuple[float, ...] = ()
    peers: tuple[PeerTraffic, ...] = ()
    tensors: tuple[Tensors, ...] = ()
    records: int = 0
    lost: int = 0
    unseen: tuple[str, ...] = ()  # ways by which bytes may have gone past the profiler

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """The inverse of `facts`. Raises KeyError, TypeError or ValueError for anything else."""
        return read(cls, facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProfile:
    """A whole job. Bytes and times are those of an iteration in steady state.

    `traffic` judges `bytes_per_iteration`, `period_s` and `phases`; `sizes` judges `model_bytes`,
    `largest_tensor_bytes` and `skew`. Unknown values are None.
    """

    pattern: Pattern
    traffic: TrafficVerdict
    sizes: TrafficVerdict
    processes: int  # that took part
    world_size: int | None
    iterations: int = 0  # that every one of them was seen in
    period_s: float | None = None  # mean
    jitter: float | None = None  # interquartile range over median
    bytes_per_iteration: float | None = None  # sent or received by the busiest process
    model_bytes: float | None = None
    largest_tensor_bytes: Interval | None = None
    skew: Interval | None = None  # largest tensor over model, 0 to 1 (Tiresias 3.3)
    server_skew: float | None = None  # bytes of the busiest parameter server over their mean
    servers: tuple[PeerTraffic, ...] = ()
    buckets: tuple[int, ...] = ()  # bytes, in the order of issue where that is known
    tensors: tuple[int, ...] = ()  # bytes, largest first
    phases: tuple[float, ...] = ()  # bytes of the busiest process in equal parts of an iteration
    active_fraction: float | None = None  # of an iteration in which it sends
    self_check_error: float | None = None  # relative difference of two ways to the model's size
    records: int = 0
    lost: int = 0
    unseen: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **plain(self)}

    def json(self) -> str:
        return json.dumps(self.facts(), separators=(",", ":"))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """The inverse of `facts`. Raises KeyError, TypeError or ValueError for anything else."""
        if facts["schema"] != SCHEMA:
            raise ValueError(f"schema {facts['schema']!r} is not {SCHEMA}")
        return read(cls, facts)


_LARGEST = 1e300  # a whole number may be more than any float
_T = TypeVar("_T")


def plain(value: Any) -> Any:
    """Objects for values with named parts, lists for tuples, words for enums."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        if hasattr(value, "_asdict"):
            return {name: plain(part) for name, part in value._asdict().items()}
        return [plain(part) for part in value]
    return value.value if isinstance(value, StrEnum) else value


def read(kind: type[_T], facts: Any) -> _T:
    """The inverse of `plain` for a kind of value with named parts, each of its declared type.

    Raises KeyError, TypeError or ValueError for facts that are something else.
    """
    declared: Any = kind
    return kind(**{name: _part(of, facts[name]) for name, of in _parts(declared).items()})


@cache
def _parts(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _part(kind: Any, value: Any) -> Any:
    if isinstance(kind, UnionType):
        return None if value is None else _part(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{value!r} is no list")
        return tuple(_part(get_args(kind)[0], each) for each in value)
    if kind is int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            raise ValueError("no number of things")
        return value
    if kind is float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{value!r} is no amount")
        if not 0 <= value <= _LARGEST:
            raise ValueError(f"{value!r} is no amount")
        return float(value)
    if kind is str:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is no text")
        return value
    return kind(value) if issubclass(kind, StrEnum) else read(kind, value)
