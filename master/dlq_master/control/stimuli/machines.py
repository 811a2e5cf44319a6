"""Stimuli of priced pools, and the requests to their providers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlq_master.control.stimuli.caller import CallerRequest, NodeRequest, Stimulus


class Verb(StrEnum):
    """A request to a provider."""

    START = "start"
    STOP = "stop"
    LIST = "list"


class Act(NamedTuple):
    """One thing to ask of the provider of a pool; of a machine, unless it is a list. Never stored:
    the rows of machines say what is to be done, and it is asked again until it is."""

    verb: Verb
    pool: str
    request_id: str = ""
    node_id: str = ""
    instance_id: str = ""
    secret: str = ""  # of the token with which its agent joins; "": it has joined


class Listed(NamedTuple):
    """A machine that a provider says is there, or is coming."""

    request_id: str
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTold(Stimulus):
    """The answer of a provider to a request. `fault`: why it did nothing, or nobody knows whether
    it did.
    """

    act: Act
    instance_id: str = ""  # of start
    gone: bool = False  # of stop: it is not paid any more
    listed: tuple[Listed, ...] = ()  # of list
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMachines(CallerRequest[tuple[str, ...]]):
    """Give these machines back, or all of a pool. The answer is their request ids."""

    machine_ids: tuple[str, ...] = ()
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceLeave(NodeRequest[int]):
    """The provider of this node takes it back in so long. The answer is the number of
    ranks there.
    """

    leave_s: float
