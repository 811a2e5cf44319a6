"""A plan that may take long is made elsewhere: raised where the long work would begin."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """The part of a plan that takes long."""

    SLOT = "slot"  # who holds the next slot: nothing else can be decided before
    PROMISES = "promises"  # which deadlines are promised
    PLAN = "plan"  # everything from here on


class Elsewhere(Exception):
    """This plan may take long, so another process makes it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(f"the {stage.value} may take long")
        self.stage = stage
