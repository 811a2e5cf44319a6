"""The common part of the three state machines: causes of stops, and their one error.

A step is a function: the value before and an event in, the value after out.
"""

from __future__ import annotations

from enum import StrEnum


class StopCause(StrEnum):
    """Why a live attempt is told to stop."""

    PREEMPT = "preempt"
    RECLAIM = "reclaim"  # its lent server is asked back
    PAUSE = "pause"
    REQUEUE = "requeue"  # by a user's wish; it queues again at once
    CANCEL = "cancel"
    TIME_LIMIT = "time_limit"
    DRAIN = "drain"
    GANG_FAILURE = "gang_failure"
    HOLD_EXPIRED = "hold_expired"
    FENCE = "fence"
    TRIAL = "trial"  # it only tried its job, and that is over


class IllegalStep(Exception):
    """The table has no row for this event in this state; carries the machine's story."""

    def __init__(self, machine: str, subject: str, state: StrEnum, event: object) -> None:
        super().__init__(f"{machine} {subject}: {type(event).__name__} in state {state.value}")
        self.machine = machine
        self.subject = subject
        self.state = state
        self.event = event
