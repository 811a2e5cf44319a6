"""The grounds of a promise: the words of a verdict."""

from __future__ import annotations

from enum import StrEnum


class VerdictGround(StrEnum):
    """The ground of a promise."""

    QUOTA = "quota"  # its team has promised GPUs enough
    WORTH = "worth"  # others earn more with as many GPUs, and more is asked for than there is
    TYPE = "type"  # it may get several GPU types, and its run time is of one of them
    KEEPS = "keeps"  # it cannot save: a stop would cost it all its work
    WIDTH = "width"  # no slot has so many GPUs
    REACH = "reach"  # its deadline is too early even for it alone
    FLUID = "fluid"  # some stretch of slots has not enough GPUs, whatever the plan
    PLAN = "plan"  # in fractions it fits, but no slots were found
    HOLES = "holes"  # admitted: the kept plan has room
    MOVED = "moved"  # admitted: others have made room in the kept plan
    REPLAN = "replan"  # admitted: a new plan serves everybody
