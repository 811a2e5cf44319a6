"""The grounds of a promise: the words of a verdict."""

from __future__ import annotations

from enum import StrEnum


class VerdictGround(StrEnum):
    """Why a deadline is promised, or why it is not."""

    QUOTA = "quota"  # Refused: the team has promises for all GPUs of its quota.
    WORTH = "worth"  # Refused: GPUs are scarce, and other jobs earn more with as many.
    TYPE = "type"  # Refused: the job may get several GPU types, and its run time is known for one.
    KEEPS = "keeps"  # Refused: the job cannot save, so a stop would lose all its work.
    WIDTH = "width"  # Refused: no slot has as many GPUs as the job asks for.
    REACH = "reach"  # Refused: the deadline is too early, even if the job ran alone.
    FLUID = "fluid"  # Refused: earlier promises leave too few GPU hours before the deadline.
    PLAN = "plan"  # Refused: enough GPU hours are left, but no slots were found.
    HOLES = "holes"  # Promised: the kept plan has free slots for the job.
    MOVED = "moved"  # Promised: other jobs moved to other slots of the kept plan.
    REPLAN = "replan"  # Promised: a new plan keeps all promises.
    OVERRUN = "overrun"  # Withdrawn: the job has used its reserved time and has not ended.
    BROKEN = "broken"  # Withdrawn: no plan keeps the promise any more.
