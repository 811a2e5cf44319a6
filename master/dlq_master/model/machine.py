"""What the three state machines share: a step's result, its effect and its one error."""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, NamedTuple

from dlq_master.model.ids import AttemptKey
from dlq_master.model.values import ValueT, maker


class StopCause(StrEnum):
    """Why a live attempt is told to stop."""

    PREEMPT = "preempt"
    PAUSE = "pause"
    CANCEL = "cancel"
    TIME_LIMIT = "time_limit"
    DRAIN = "drain"
    GANG_FAILURE = "gang_failure"
    HOLD_EXPIRED = "hold_expired"
    FENCE = "fence"


class StopAttempt(NamedTuple):
    """Effect: the job no longer wants this attempt; feed it StopRequested(cause)."""

    key: AttemptKey
    cause: StopCause


class Step(NamedTuple, Generic[ValueT]):
    """A machine's answer: the value after the event and what has to follow from it."""

    value: ValueT
    effects: tuple[StopAttempt, ...] = ()


answer = maker(Step)


class IllegalTransition(Exception):
    """The table has no row for this event in this state; carries the machine's story."""

    def __init__(self, machine: str, subject: str, state: StrEnum, event: object) -> None:
        super().__init__(f"{machine} {subject}: {type(event).__name__} in state {state.value}")
        self.machine = machine
        self.subject = subject
        self.state = state
        self.event = event
