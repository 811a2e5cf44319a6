"""The planning process: reads questions from standard input, answers on standard output, knows
nothing else.

It has no file, no socket and no clock but for how long it took. It ends when its input does, so
that it never outlives its master by more than the plan at hand.
"""

from __future__ import annotations

import gc
import os
import sys
from time import perf_counter
from typing import BinaryIO

from dlq_master.model.cluster import drive
from dlq_master.model.plan import Plan
from dlq_master.model.view import View
from dlq_master.planner import code
from dlq_master.planner.frames import HEAD, framed, length_of
from dlq_master.planner.modest import be_modest
from dlq_master.planner.plans import Answer, write_answer
from dlq_master.planner.schedules import RENT, solved
from dlq_master.planner.snapshot import loads, read_slices
from dlq_master.planner.told import KeptState
from dlq_master.policy.admit.stage import promised
from dlq_master.policy.elsewhere import Stage
from dlq_master.policy.legal.check import check_delta
from dlq_master.policy.offload import offering, timed
from dlq_master.policy.pipeline import plan
from dlq_master.policy.policy import Policy

LONGEST_FAULT = 500
NICE = 5
TIDIED = 500  # answers
_NO_EPOCH = 0  # nothing that is placed here is ever launched


def main() -> None:
    be_modest(NICE)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints goes to the log
    _warm()
    target.write(framed(code.greeting(code.digest())))
    target.flush()
    serve(source, target)


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer each question: a frame that says what is asked, and frames with a snapshot."""
    desk, answered = PlannerDesk(), 0
    # Looking through all that is kept takes longer than most answers: that is done between them
    gc.disable()
    while head := source.read(HEAD):
        number, stage, pieces = loads(source.read(length_of(head)))
        snapshot = [source.read(length_of(source.read(HEAD))) for _ in range(pieces)]
        target.write(framed(write_answer(desk.answer(number, stage, snapshot))))
        target.flush()
        answered += 1
        gc.collect(1 if answered % TIDIED else 2)


class PlannerDesk:
    """The worker, and its memory of earlier questions."""

    def __init__(self) -> None:
        self._kept = KeptState()

    def answer(self, number: int, stage: str, snapshot: list[bytes]) -> Answer:
        """The plans for one question, or why there are none."""
        began_s = perf_counter()
        try:
            plans = self._plans(stage, snapshot)
        except Exception as fault:  # noqa: BLE001 - any bug of a policy
            self._kept.forget()
            words = f"{type(fault).__name__}: {fault}"[:LONGEST_FAULT]
            return Answer(number, (), perf_counter() - began_s, words)
        return Answer(number, tuple(plans), perf_counter() - began_s)

    def _plans(self, stage: str, snapshot: list[bytes]) -> list[Plan]:
        if stage == RENT:
            return [solved(*snapshot)]
        if stage == Stage.PLAN.value:
            view, policy = read_slices(snapshot).look()
            return _plans(view, _as_here(policy))
        (told,) = snapshot
        view, policy = self._kept.look(told)
        plans = _promises(view, _as_here(policy))
        self._kept.take_back()
        return plans


def _as_here(policy: Policy) -> Policy:
    """Nobody waits for offers here, and the master ends a plan that takes too long."""
    return timed(offering(policy), perf_counter)


def _plans(view: View, policy: Policy) -> list[Plan]:
    """As `policy.turn.decide`, written down."""
    found = []
    while True:
        step = plan(view, policy)
        check_delta(view, step, policy)
        found.append(step)
        if not step.again:
            return found
        drive.apply(view.cluster, step, view.now_s, _NO_EPOCH)


def _promises(view: View, policy: Policy) -> list[Plan]:
    """The jobs that hold the slot that is due, and then the deadlines that are promised."""
    rules, found = policy.promises, []
    while rules is not None and (changes := promised(view, rules)):
        step = Plan(changes, view.now_s, again=True)
        check_delta(view, step, policy)
        found.append(step)
        drive.apply(view.cluster, step, view.now_s, _NO_EPOCH)
    return found


def _warm() -> None:
    """The imports that every plan needs here take longest the first time."""
    import dlq_master.policy.admit.deadlines
    import dlq_master.policy.partition.slots
    import dlq_master.policy.place.whole.arranging
    import dlq_master.policy.promise.solver.solve  # noqa: F401 imported to be there


if __name__ == "__main__":
    main()
