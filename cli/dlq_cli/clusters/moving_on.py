"""`dlq move --all`: one round over all waiting jobs of this user, at all clusters of the list.

It settles open hand-overs first, and moves a job if the gain is plain (`dlq_broker.resting`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from dlq_broker.handover import HandOver, HandOverState
from dlq_broker.offers import FORMER_RELEASE, ClusterOffer, NoOffer, OfferAnswer
from dlq_broker.resting import is_plain_gain, moves_by_name, rests_until_s
from dlq_cli.app import App
from dlq_cli.clusters.going import ManyWishes, carried, failure_of, ranked_by, settle
from dlq_cli.clusters.listed import Clusters
from dlq_cli.clusters.moving import (
    DEPEND,
    WAITS,
    MovableJob,
    answers_for,
    begin_move,
    check_way_back,
    jobs_waited_for,
    movable,
)
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError, Unavailable

# Questions of one round. Each is asked at every cluster.
MOST_ASKED = 20
# Rounds of many users must not come in step.
_JITTER = 0.2
_RUNS = ("assigned", "running")


class RoundWishes(NamedTuple):
    """The flags of the command.

    `leave`: move all jobs of this cluster away, also running ones; empty: move jobs that gain by
    it.
    """

    wishes: ManyWishes
    leave: str


def move_all(app: App, wishes: RoundWishes, every_s: float | None) -> None:
    """One round, or rounds at this interval until Ctrl-C."""
    pause = threading.Event().wait  # Ctrl-C ends it at once
    while True:
        clusters = Clusters(app)
        try:
            one_round(app, clusters, wishes)
        except DlqError as error:
            if every_s is None:
                raise
            app.say(error.what)
        finally:
            clusters.close()
        if every_s is None:
            return
        pause(every_s * random.uniform(1.0 - _JITTER, 1.0 + _JITTER))


def one_round(app: App, clusters: Clusters, wishes: RoundWishes) -> list[HandOver]:
    """The moves of this round; each is printed."""
    settle(app, clusters, [hand for hand in clusters.records.all() if hand.is_open])
    return _Round(app, clusters, wishes).moves()


class _Round:
    """A round in progress. It asks once for facts that all its jobs share."""

    def __init__(self, app: App, clusters: Clusters, wishes: RoundWishes) -> None:
        self._app, self._clusters = app, clusters
        self._wishes, self._leave = wishes.wishes, wishes.leave
        # By cluster, as the round begins: one submitted since then is not seen.
        self._waited_for: dict[str, Mapping[str, str]] = {}
        self._way_back: OfferAnswer | None = None  # of the cluster that is left
        self._given_to = set[str]()

    def moves(self) -> list[HandOver]:
        """Move the jobs, one after another."""
        moved: list[HandOver] = []
        waiting = list(self._waiting())
        if len(waiting) > MOST_ASKED and not self._leave:
            # By chance: else jobs that stay would keep all others from a question.
            waiting = random.sample(waiting, MOST_ASKED)
        for at, job_id in waiting:
            hand = None
            try:
                hand = self._moved(at, job_id)
            except DlqError as error:
                if self._leave:
                    self._app.say(f"{at}:{job_id}: {error.what}")
            if hand is not None:
                self._given_to.add(hand.cluster)
                moved.append(hand)
                _tell(self._app, self._clusters, hand, f"{at}:{job_id}")
        return moved

    # --- helpers, in order of use -----------------------------------------------------------------

    def _waiting(self) -> Iterator[tuple[str, str]]:
        """Jobs that may move, by cluster, the first submitted first. A silent cluster has none."""
        moved, now_s = moves_by_name(self._clusters.records.all()), self._app.clock.now_s()
        may_move = WAITS + _RUNS if self._leave else WAITS
        for at in [self._leave] if self._leave else self._clusters.all:
            try:
                jobs = Jobs(self._clusters.app(at).connection())
                there = jobs.list(user=jobs.caller, states=sorted({*may_move, *DEPEND})).jobs
            except DlqError as error:
                self._app.say(f"{at}: {error.what}")
                continue
            depend = [job for job in there if shown_state(job) in DEPEND]
            self._waited_for[at] = jobs_waited_for(depend)
            for job in there:
                moves = shown_state(job) in may_move and not job.HasField("array_task")
                name = f"{at}:{job.job_id}"
                if moves and (self._leave or rests_until_s(moved, name) <= now_s):
                    yield at, job.job_id

    def _moved(self, at: str, job_id: str) -> HandOver | None:
        """The hand-over of one job; None: it stays."""
        app, clusters = self._app, self._clusters
        job = movable(clusters, at, job_id, self._wishes.to, self._waited_for[at])
        # A cluster that is left may need long for a forecast, and no forecast would keep the job.
        own = not self._leave
        answers = answers_for(app, clusters, job, self._wishes.within_s, own=own)
        if job.saved:
            check_way_back(job, self._own_answer(job, answers))
        ranking = ranked_by(app, answers, self._wishes.rule)
        better = self._gains(job, ranking.order)
        if not better and self._leave:
            none = [one for one in answers if isinstance(one, NoOffer)]
            told = "; ".join(f"{one.cluster}: {one.why}" for one in none)
            raise Unavailable(f"it stays, as no other cluster makes an offer: {told}")
        if not better:
            return None
        hand = begin_move(app, clusters, job, better, answers, ranking.reasons.items())
        return carried(app, clusters, hand)

    def _own_answer(self, job: MovableJob, answers: Sequence[OfferAnswer]) -> OfferAnswer:
        """The answer of the cluster that has the job.

        For the cluster of `leave`, one answer says whether it takes jobs back with their
        checkpoints, since its release decides that. Any other refusal is about this job alone.
        """
        if not self._leave:
            return next(answer for answer in answers if answer.cluster == job.at)
        if self._way_back is not None:
            return self._way_back
        door = self._clusters.door(job.at)
        answer = door.offer_of(job.job.job_id, self._wishes.within_s, looks=False)
        if isinstance(answer, ClusterOffer) or answer.reason == FORMER_RELEASE:
            self._way_back = answer
        return answer

    def _gains(self, job: MovableJob, order: tuple[ClusterOffer, ...]) -> list[ClusterOffer]:
        """The offers that are worth a move.

        A cluster that has got a job in this round gets no other: its offers are outdated.
        """
        if self._leave:
            return list(order)
        others = [offer for offer in order if offer.cluster != job.at]
        own = next((offer for offer in order if offer.cluster == job.at), None)
        now_s = self._app.clock.now_s()
        return [
            offer
            for offer in others
            if offer.cluster not in self._given_to and is_plain_gain(own, offer, now_s)
        ]


def _tell(app: App, clusters: Clusters, hand: HandOver, name: str) -> None:
    if hand.state is HandOverState.PLACED:
        click.echo(f"job {name} is {hand.global_name} now")
        return
    failure = failure_of(app, clusters, hand)
    if failure is not None:
        app.say(failure.what)
