"""Stimuli of loans: requests of people and of the inference side, and reports of devices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dlq_master.control.stimuli.caller import CallerRequest, SessionReport
from dlq_master.model.ids import JobId, NodeId
from dlq_master.policy.reclaim.demand import Choice, Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class LendServers(CallerRequest[tuple[NodeId, ...]]):
    """Lend these servers, or so many. The answer is their ids."""

    node_ids: tuple[NodeId, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchLoans(CallerRequest[None]):
    """Follow the load of the inference side from now on, or do not."""

    on: bool


class Found(NamedTuple):
    """A choice from a demand, which `basis` identifies."""

    choice: Choice
    basis: str


class ToChoose(NamedTuple):
    """A choice that the caller has to make outside of the loop."""

    demand: Demand
    choose: Callable[[Demand], Choice]
    basis: str


class Hit(NamedTuple):
    """The effect of a reclaim on one job; fields as in dlq/v1/loan_service.proto."""

    job_id: JobId
    user: str
    name: str
    action: str
    gpus: int
    kept_gpus: int
    grace_s: float
    lost_s: float
    killed: bool
    deadline_s: float | None


class Reclaimed(NamedTuple):
    """The effects of a reclaim, planned or done. `token`: names the plan of one that has not been
    done.
    """

    token: str
    node_ids: tuple[NodeId, ...]
    hits: tuple[Hit, ...]
    promised_s: float
    proven: bool
    too_long: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimServers(CallerRequest[Reclaimed | ToChoose]):
    """Take these servers back, or so many, or those of a plan. Where the choice takes
    long the answer is `ToChoose`: then it is to be asked again with what was found."""

    node_ids: tuple[NodeId, ...] = ()
    count: int = 0
    within_s: float | None = None
    force: bool = False
    token: str = ""
    plan_only: bool = False
    found: Found | None = None
    hurry: bool = False  # take a choice that is found at once


class Reading(NamedTuple):
    """The report of a device about its use."""

    gpu: int
    used_memory_bytes: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeLook(SessionReport):
    """The report of the GPUs of a node, as it was asked by that number."""

    number: int
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtGpus:
    """Ask a node what is on its GPUs. Never stored: it is asked again until it has answered."""

    node_id: NodeId
    number: int
    sequence: int = 0
