"""Carries a hand-over on until it is certain where its job is, or the patience is over.

Its safety is the order of effects: first the record, then the message, then the record of the
answer. A kill between any two leaves a record that says which cluster may have the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dlq.v1 import job_pb2
from dlq_broker.doors import ClusterDoor, StillLeaves
from dlq_broker.handover import (
    HandOver,
    MovingJob,
    NextAct,
    awaited,
    given_up,
    kept,
    leaving,
    paused,
    proven,
    resumed,
    taken,
    tried,
)
from dlq_broker.over_wire import leave_out_passed
from dlq_broker.records import HandOverRecords
from dlq_common.errors import AlreadyExists, NotFound


class Carrier:
    """Carries hand-overs to clusters. `now_s` is UTC."""

    def __init__(
        self,
        records: HandOverRecords,
        doors: Mapping[str, ClusterDoor],
        now_s: Callable[[], float],
    ) -> None:
        self._records = records
        self._doors = doors
        self._now_s = now_s

    def known(self, number: str, digest: str) -> HandOver | None:
        """The hand-over with this number. AlreadyExists: it is of another spec."""
        hand = self._records.read(number)
        if hand is not None and hand.digest != digest:
            raise AlreadyExists(f"hand-over {number} is of another job", kind="handover", id=number)
        return hand

    def begin(self, hand: HandOver) -> None:
        """Record a hand-over. From then on its job is submitted exactly once, whatever
        is killed.
        """
        with self._records.held(hand.number):
            if self._records.read(hand.number) is not None:
                what = f"hand-over {hand.number} has begun already"
                raise AlreadyExists(what, kind="handover", id=hand.number)
            self._records.write(hand)

    def go_on(
        self,
        number: str,
        wait: Callable[[], bool],
        heard: Callable[[], None] = lambda: None,
    ) -> HandOver:
        """Ask until the hand-over has ended, and return it; an open one may be continued later.

        `wait` pauses before a question is repeated; False: stop. `heard`: the cluster has answered
        that its job still saves, so the patience begins anew. NotFound, TryAgain: as the records
        say.
        """
        with self._records.held(number):
            hand = self._read(number)
            while hand.is_open:
                door = self._doors.get(hand.cluster)
                if door is None or door.site != hand.site or hand.is_too_old(self._now_s()):
                    break
                before = hand
                hand = self._step(door, hand, heard)
                stands = hand.is_open and (hand.place, hand.act) == (before.place, before.act)
                if stands and not wait():
                    break
            return hand

    def give_up(self, number: str, wait: Callable[[], bool]) -> HandOver:
        """Give the hand-over up. It ends once it is certain that no cluster has the job."""
        with self._records.held(number):
            hand = given_up(self._read(number))
            self._records.write(hand)
        return self.go_on(number, wait)

    def _read(self, number: str) -> HandOver:
        hand = self._records.read(number)
        if hand is None:
            raise NotFound(f"there is no hand-over {number}", kind="handover", id=number)
        return hand

    def _step(self, door: ClusterDoor, hand: HandOver, heard: Callable[[], None]) -> HandOver:
        if hand.act is NextAct.SUBMIT:
            hand = self._written(leaving(self._timely(hand)))
            return self._written(tried(hand, door.submit(hand.spec, hand.key)))
        if hand.moving is not None:
            match hand.act:
                case NextAct.TAKE | NextAct.PAUSE | NextAct.RESUME:
                    return self._order(door, self._written(leaving(hand)), hand.moving)
                case NextAct.AWAIT:
                    answer = door.left(hand.moving.job)
                    if isinstance(answer, StillLeaves):
                        heard()
                    return self._written(awaited(hand, answer))
        step = kept if hand.act is NextAct.KEEP else proven
        return self._written(step(hand, door.withdraw(hand.key)))

    def _timely(self, hand: HandOver) -> HandOver:
        """The hand-over without deadlines that have passed.

        A job that moves keeps its deadlines as instants, and one may pass on the way. They are
        removed only before the first try, which may stay unanswered. A repeat with another content
        under the same key would be refused.
        """
        if hand.moving is None or hand.tries:
            return hand
        spec = job_pb2.JobSpec.FromString(hand.spec)
        leave_out_passed(spec, self._now_s())
        return replace(hand, spec=spec.SerializeToString(deterministic=True))

    def _order(self, door: ClusterDoor, hand: HandOver, moving: MovingJob) -> HandOver:
        """Order the cluster that has the job to change it."""
        if hand.act is NextAct.TAKE:
            return self._written(taken(hand, door.take(moving.job, moving.version, hand.key)))
        if hand.act is NextAct.PAUSE:
            return self._written(paused(hand, door.pause(moving.job, hand.key)))
        return self._written(resumed(hand, door.resume(moving.job, hand.key)))

    def _written(self, hand: HandOver) -> HandOver:
        self._records.write(hand)
        return hand


def why_open(hand: HandOver, doors: Mapping[str, ClusterDoor], now_s: float) -> str:
    """Why an open hand-over has not ended, and how it can end."""
    door = doors.get(hand.cluster)
    if door is None:
        return f"cluster {hand.cluster} is not in the list any more, and may have the job"
    if door.site != hand.site:
        return f"the list means another cluster by {hand.cluster} now: it was {hand.site}"
    if hand.is_too_old(now_s):
        return (
            f"it is too old to be sent again: look for the job at {hand.cluster}, and then "
            f"remove the record"
        )
    if hand.act is NextAct.AWAIT:
        return f"cluster {hand.cluster} has the job, and lets it save before it moves"
    if not hand.tries and hand.act is NextAct.SUBMIT:
        last = f" ({hand.story[-1]})" if hand.story else ""
        return f"no cluster has the job yet, and {hand.cluster} is asked for it next{last}"
    return f"cluster {hand.cluster} may have the job, and has not answered yet"
