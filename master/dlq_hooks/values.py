"""The values of hooks, of version API_VERSION. Later versions add fields, and take none away."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

API_VERSION: Final = 1


@dataclass(slots=True)
class SubmittedSpec:
    """A job as its user submitted it. A hook may change the fields of CHANGEABLE, as said there."""

    name: str = ""
    command: list[str] = field(default_factory=list)
    script: str = ""
    working_directory: str = ""
    queue: str = ""  # "": the default queue
    team: str = ""  # "": the user's default team
    gpus: int = 0
    cores: int = 0  # of a job without GPUs
    nodes: int | None = None  # None: the master chooses
    gpu_type: str = ""  # "": any
    memory_bytes: int | None = None  # of each node
    time_limit_s: float | None = None  # None: there is none
    run_estimate_s: float | None = None
    nice: int = 0  # above 0: behind the other jobs of its queue
    labels: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    image: str = ""  # "": it runs without a container
    hold: bool = False
    tasks: int = 1  # of an array, or the jobs of a member of a group
    deadlines: int = 0  # how many it asks for
    interactive: bool = False


CHANGEABLE: Final = {
    "queue": "another queue",
    "time_limit_s": "another limit, or one where there is none",
    "labels": "labels may be added, changed and taken away",
    "environment": "variables may be added; those of the user stay",
    "image": "another image, for a job with a container",
    "nice": "a higher one",
    "hold": "True",
}


@dataclass(frozen=True, slots=True)
class HookUser:
    """The person who submits or updates, by their certificate."""

    name: str
    role: str  # "user", "operator" or "admin"


@dataclass(frozen=True, slots=True)
class HookContext:
    """The cluster at the time of the call."""

    cluster: str
    time_s: float  # seconds since 1970; read no clock of your own
    queues: tuple[str, ...] = ()
    dry_run: bool = False  # nothing is accepted: a test, or `--test-only`
    update: bool = False  # the job is there already; it is as `dlq update` would leave it
    changed: tuple[str, ...] = ()  # the wishes of an update, such as "time_limit_s" or "labels"
    owner: str = ""  # of an update: the user of the job; `user` may be an operator
    running: bool = False  # of an update: the job runs now
    api_version: int = API_VERSION


@dataclass(frozen=True, slots=True)
class HookAttempt:
    """An attempt of a job that has started or ended. A repeat has the same `key`."""

    key: str  # such as "17.2.on_end": tells a repeat, where the hook keeps books elsewhere
    job_id: int
    attempt: int
    name: str
    user: str
    team: str
    queue: str
    labels: dict[str, str]
    gpus: int
    nodes: tuple[str, ...]
    time_s: float  # of the start or the end
    started_s: float | None  # None: it never ran
    end: str = ""  # of on_end, such as "succeeded", "failed", "preempted" or "node_lost"
    end_reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    array_id: int | None = None
    array_index: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """The job does not start again until an operator releases it; its user reads the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The job is not accepted; its user reads the reason."""

    reason: str
