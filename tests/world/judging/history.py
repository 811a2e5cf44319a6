"""Whether what clients saw of one job can be told as one thing after another.

An operation takes effect at some instant between its call and its answer; without an answer it
took effect at some later instant, or never. A history is linearizable if there is an order that
keeps to these spans, in which every answer is what a single register would say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlq_master.model.jobs.job import ENDED, JobState

Seen = tuple[int, int, JobState]  # version, nice, state
NEVER = 10**12
MOST_STEPS = 60_000  # of a search; a history that takes more is passed over


@dataclass(slots=True)
class Operation:
    """`told`: what its answer says of the job; of an edit nothing, or a look that found none.

    The answer of an edit is of the end of its turn, and another edit may follow in that turn. So
    its answer is a look of its own, `after` the edit.
    """

    kind: str
    value: int | None
    called: int
    back: int = NEVER
    told: Seen | None = None
    after: Operation | None = None

    def answered(self, at: int, told: Seen | None) -> None:
        self.back, self.told = at, told


class Register(NamedTuple):
    """What a job must remember."""

    exists: bool = False
    version: int = 0
    nice: int = 0
    ended: JobState | None = None
    cancelled: bool = False


def _apply(register: Register, operation: Operation) -> Register | None:
    """The register after it, or None if its answer is not possible here.

    Between operations the master itself moves the job on: versions rise, and it may end once.
    """
    kind, told = operation.kind, operation.told
    if kind == "submit":
        if register.exists:
            return None
        return register._replace(exists=True)
    if kind == "look" and told is None:
        return register if not register.exists else None
    if not register.exists:
        return None
    nice = operation.value if kind == "nice" and operation.value is not None else register.nice
    cancelled = register.cancelled or kind == "cancel"
    if told is None:
        return register._replace(nice=nice, cancelled=cancelled)
    version, seen_nice, state = told
    if version < register.version or seen_nice != nice:
        return None
    if register.ended is not None and state is not register.ended:
        return None
    ended = state if state in ENDED else None
    if kind == "look" and version == register.version and ended is not register.ended:
        return None
    return Register(True, version, nice, ended, cancelled)


def is_linearizable(history: Sequence[Operation]) -> bool:
    """By search, as Wing and Gong do it."""
    operations = sorted(history, key=lambda one: (one.called, one.back))
    count = len(operations)
    seen: set[tuple[int, Register]] = set()
    stack = [(0, Register())]
    places = {id(one): at for at, one in enumerate(operations)}
    needs = [1 << places[id(one.after)] if one.after is not None else 0 for one in operations]
    must = sum(1 << at for at, one in enumerate(operations) if one.back != NEVER)
    steps = 0
    while stack:
        done, register = stack.pop()
        if done & must == must:
            return True
        if (done, register) in seen:
            continue
        seen.add((done, register))
        steps += 1
        if steps > MOST_STEPS:
            return True
        left = [at for at in range(count) if not done >> at & 1]
        first_back = min(operations[at].back for at in left)
        for at in reversed(left):
            if operations[at].called > first_back or needs[at] & ~done:
                continue
            after = _apply(register, operations[at])
            if after is not None:
                stack.append((done | 1 << at, after))
    return False
