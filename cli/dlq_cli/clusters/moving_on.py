"""`dlq move --all`: one round over all jobs of this user that wait, at all clusters of the list.

It settles open hand-overs first, and moves a job where the gain is plain (`dlq_broker.resting`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import NamedTuple

import click

from dlq_broker.handover import HandOver, HandOverState
from dlq_broker.offers import ClusterOffer
from dlq_broker.resting import is_plain_gain, rests_until_s
from dlq_cli.app import App
from dlq_cli.clusters.going import ManyWishes, carried, failure_of, ranked_by, settle
from dlq_cli.clusters.listed import Clusters
from dlq_cli.clusters.moving import (
    WAITS,
    MovableJob,
    answers_for,
    begin_move,
    check_way_back,
    movable,
)
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError

# Questions of one round. Each is asked at every cluster.
MOST_ASKED = 20
# Rounds of many users must not come in step.
_JITTER = 0.2
_RUNS = ("assigned", "running")


class RoundWishes(NamedTuple):
    """The words of the command line. `leave`: move the jobs of this cluster away, also running
    ones, wherever they go; empty: move what gains by it.
    """

    wishes: ManyWishes
    leave: str


def move_all(app: App, wishes: RoundWishes, every_s: float | None) -> None:
    """One round, or rounds until Ctrl-C with so long between them."""
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
    """The moves of this round; each is told."""
    settle(app, clusters, [hand for hand in clusters.records.all() if hand.is_open])
    moved: list[HandOver] = []
    given_to = set[str]()
    waiting = list(_waiting(app, clusters, wishes))
    if len(waiting) > MOST_ASKED and not wishes.leave:
        # By chance: else jobs that stay would keep all others from a question.
        waiting = random.sample(waiting, MOST_ASKED)
    for at, job_id in waiting:
        hand = None
        try:
            hand = _moved(app, clusters, at, job_id, wishes, given_to)
        except DlqError as error:
            if wishes.leave:
                app.say(f"{at}:{job_id}: {error.what}")
        if hand is not None:
            given_to.add(hand.cluster)
            moved.append(hand)
            _tell(app, clusters, hand, f"{at}:{job_id}")
    return moved


# --- helpers, in order of use ---------------------------------------------------------------------


def _waiting(app: App, clusters: Clusters, wishes: RoundWishes) -> Iterator[tuple[str, str]]:
    """Jobs that may move, by cluster, the first submitted first. A silent cluster has none."""
    hands, now_s = clusters.records.all(), app.clock.now_s()
    states = WAITS + _RUNS if wishes.leave else WAITS
    for at in [wishes.leave] if wishes.leave else clusters.all:
        try:
            jobs = Jobs(clusters.app(at).connection())
            there = jobs.list(user=jobs.caller, states=states).jobs
        except DlqError as error:
            app.say(f"{at}: {error.what}")
            continue
        for job in there:
            rests = rests_until_s(hands, f"{at}:{job.job_id}") > now_s
            if not job.HasField("array_task") and (wishes.leave or not rests):
                yield at, job.job_id


def _moved(
    app: App, clusters: Clusters, at: str, job_id: str, wishes: RoundWishes, given_to: set[str]
) -> HandOver | None:
    """The hand-over of one job; None: it stays."""
    job = movable(clusters, at, job_id, wishes.wishes.to)
    answers = answers_for(app, clusters, job, wishes.wishes.within_s)
    check_way_back(job, answers)
    ranking = ranked_by(answers, wishes.wishes.rule)
    better = _gains(app, job, ranking.order, given_to, leaves=bool(wishes.leave))
    if not better:
        return None
    hand = begin_move(app, clusters, job, better, answers, ranking.reasons.items())
    return carried(app, clusters, hand)


def _gains(
    app: App,
    job: MovableJob,
    order: tuple[ClusterOffer, ...],
    given_to: set[str],
    *,
    leaves: bool,
) -> list[ClusterOffer]:
    """The offers that are worth a move. A cluster that has got a job in this round gets no other
    one: its offers are too old by that.
    """
    others = [offer for offer in order if offer.cluster != job.at]
    if leaves:
        return others
    own = next((offer for offer in order if offer.cluster == job.at), None)
    now_s = app.clock.now_s()
    return [
        offer
        for offer in others
        if offer.cluster not in given_to and is_plain_gain(own, offer, now_s)
    ]


def _tell(app: App, clusters: Clusters, hand: HandOver, name: str) -> None:
    if hand.state is HandOverState.PLACED:
        click.echo(f"job {name} is {hand.global_name} now")
        return
    failure = failure_of(app, clusters, hand)
    if failure is not None:
        app.say(failure.what)
