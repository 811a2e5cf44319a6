"""The steps of an attempt, as its node told them last: kept beside the state, and never planned by.

All of it is the job's own word. The list is kept as the message in which it came: it may be long,
it comes often, and it is rarely read. Only the rpc room looks into it.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.ids import AttemptKey


class TakenSteps(NamedTuple):
    """One list. Its message has ages and no instants: they count from `told_s`."""

    key: AttemptKey
    told_s: float
    content: bytes
