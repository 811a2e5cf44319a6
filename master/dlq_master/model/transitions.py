"""Shared by the state machines of jobs, attempts and nodes: causes of stops, and the error of an
illegal step.

A step is a pure function of the value before and an event; its result is the value after.
"""

from __future__ import annotations

from enum import StrEnum


class StopCause(StrEnum):
    """Why a live attempt is told to stop."""

    PREEMPT = "preempt"
    RECLAIM = "reclaim"  # its lent server is asked back
    PAUSE = "pause"
    REQUEUE = "requeue"  # by its user; it waits again at once
    CANCEL = "cancel"
    TIME_LIMIT = "time_limit"
    DRAIN = "drain"
    GANG_FAILURE = "gang_failure"
    HOLD_EXPIRED = "hold_expired"
    FENCE = "fence"
    TRIAL = "trial"  # the end of a trial


class IllegalStep(Exception):
    """The table of a state machine has no row for this event in this state."""

    def __init__(self, machine: str, subject: str, state: StrEnum, event: object) -> None:
        super().__init__(f"{machine} {subject}: {type(event).__name__} in state {state.value}")
        self.machine = machine
        self.subject = subject
        self.state = state
        self.event = event
