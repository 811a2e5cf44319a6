"""`dlq submit --to`: ask the clusters of the list, choose one, and hand the job over once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import click

from dlq.v1 import job_pb2
from dlq_broker.asking import ClusterAnswers, ask_all
from dlq_broker.carrying import Carrier, why_open
from dlq_broker.choosing import DEFAULT_RULE, RULES, Ranking, ranked
from dlq_broker.doors import ClusterDoor
from dlq_broker.handover import HandOver, HandOverState, digest_of
from dlq_broker.measuring import measured_offers
from dlq_broker.offers import ClusterOffer, NoOffer, OfferAnswer
from dlq_cli.app import App
from dlq_cli.clusters.listed import Clusters
from dlq_cli.clusters.shown import handover_facts, offer_facts, offers_text, stderr_look
from dlq_cli.exit_codes import Ended, code_of_error
from dlq_cli.facts.common import document
from dlq_cli.patience import duration_s
from dlq_client.line.connection import Patience
from dlq_common.errors import (
    Conflict,
    DlqError,
    InvalidRequest,
    Unavailable,
    Unsatisfiable,
    error_from,
)
from dlq_common.ids import RandomIds

WITHIN_S = 10.0
LONGEST_WITHIN_S = 60  # the longest that a master waits for its twin


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyWishes:
    """The flags about clusters, and the form of the report."""

    to: str  # `any`, or names with commas
    rule: str
    within_s: float
    request_id: str
    test_only: bool
    parsable: bool
    as_json: bool


def read_rule(word: str | None) -> str:
    """The rule with this name. InvalidRequest: there is none."""
    if word is None:
        return DEFAULT_RULE
    if word not in RULES:
        known = ", ".join(RULES)
        raise InvalidRequest(f"--choose: {word[:64]!r} is none of {known}", field="choose")
    return word


def read_within(text: str | None) -> float:
    """The seconds to wait for offers."""
    seconds = duration_s("--within", text)
    if seconds is None:
        return WITHIN_S
    if not 1 <= seconds <= LONGEST_WITHIN_S:
        raise InvalidRequest(f"--within goes from 1 s to {LONGEST_WITHIN_S} s", field="within")
    return float(seconds)


def submit_to(
    app: App, clusters: Clusters, message: job_pb2.JobSpec, wishes: ManyWishes
) -> HandOver | None:
    """Hand a job over, and return the hand-over once a cluster has the job; None: nothing to
    submit.

    Raises the refusal if no cluster takes it, and Unavailable while one of them may have it.
    """
    asked = [one.name for one in clusters.named(wishes.to)]
    _check(message, asked)
    number = _number(wishes.request_id) or new_number(app)
    digest = digest_of(_identified(message))
    known = Carrier(clusters.records, {}, app.clock.now_s).known
    hand = known(number, digest) if wishes.request_id else None
    if hand is None:
        tell_open(app, clusters)
        spec = message.SerializeToString(deterministic=True)
        doors = [clusters.door(name) for name in asked]
        answers = offers_of(app, clusters, doors, spec, wishes.within_s)
        ranking = ranked_by(app, answers, wishes.rule)
        tell_offers(app, answers, ranking, ranking.order[:1], wishes)
        if not ranking.order:
            refuse(app, no_offer(answers), told=wishes.as_json)
        if wishes.test_only:
            return None
        order = tuple(offer.cluster for offer in ranking.order)
        hand = HandOver(
            number=number,
            made_s=app.clock.now_s(),
            name=message.name,
            digest=digest,
            spec=spec,
            order=order,
            sites=tuple(clusters.door(name).site for name in order),
            answers=tuple(answers),
            reasons=tuple(ranking.reasons.items()),
        )
        begin(app, clusters, hand)
    return carry(app, clusters, hand, wishes, "Submitted batch job {}")


def offers_of(
    app: App,
    clusters: Clusters,
    doors: Sequence[ClusterDoor],
    spec: bytes,
    within_s: float,
    waiting: Mapping[str, str] | None = None,
) -> list[OfferAnswer]:
    """The answer of each cluster, delayed by its measured lateness. `waiting`: as in `ask_all`."""

    def ask(former: Mapping[str, Sequence[str]]) -> ClusterAnswers:
        return ask_all(doors, spec, within_s, app.clock.boottime_s, waiting or {}, former)

    return measured_offers(clusters.records, doors, ask, app.clock.now_s())


def begin(app: App, clusters: Clusters, hand: HandOver) -> None:
    """Record the hand-over: from here on its job is submitted exactly once."""
    clusters.records.forget_old(app.clock.now_s())
    Carrier(clusters.records, {}, app.clock.now_s).begin(hand)


def carry(app: App, clusters: Clusters, hand: HandOver, wishes: ManyWishes, words: str) -> HandOver:
    """Carry it on, and print where the job is; `words` has a placeholder for its name."""
    hand = carried(app, clusters, hand)
    if wishes.as_json:
        click.echo(document({"handover": handover_facts(hand)}))
    elif hand.state is HandOverState.PLACED:
        click.echo(hand.global_name if wishes.parsable else words.format(hand.global_name))
    failure = failure_of(app, clusters, hand)
    if failure is not None:
        refuse(app, failure, told=wishes.as_json)
    return hand


def carried(app: App, clusters: Clusters, hand: HandOver) -> HandOver:
    """Carry it on while the patience lasts. TryAgain: another process does."""
    carrier = Carrier(clusters.records, clusters.doors(), app.clock.now_s)
    patience = _patience(app)
    return carrier.go_on(hand.number, patience.wait, patience.restored)


def refuse(app: App, failure: DlqError, *, told: bool) -> NoReturn:
    """End the command with this failure. `told`: its one JSON object is printed already."""
    if not told:
        raise failure
    app.say(failure.what)
    raise Ended(code_of_error(failure))


def failure_of(app: App, clusters: Clusters, hand: HandOver) -> DlqError | None:
    """Why a hand-over has no new job: the refusals, or a cluster that may have it."""
    if hand.state is HandOverState.PLACED:
        return None
    if hand.is_open:
        why = why_open(hand, clusters.doors(), app.clock.now_s())
        return Unavailable(
            f"hand-over {hand.number} is open: {why}",
            hint="no other cluster gets the job meanwhile; to go on: dlq handovers --settle, "
            f"to end it: dlq handovers --give-up {hand.number}",
        )
    told = "; ".join(hand.story)
    if hand.state is HandOverState.STAYED:
        return Conflict(f"job {hand.global_name} has not moved: {told or 'it was given up'}")
    ending = "was given up" if hand.state is HandOverState.GIVEN_UP else "found no cluster"
    return DlqError(f"hand-over {hand.number} {ending}: {told}")


def settle(app: App, clusters: Clusters, hands: Sequence[HandOver]) -> list[HandOver]:
    """Carry these on, one after another; print those that another process holds."""
    after = []
    for hand in hands:
        try:
            after.append(carried(app, clusters, hand))
        except DlqError as error:
            app.say(error.what)
            after.append(hand)
    return after


def give_up(app: App, clusters: Clusters, number: str) -> HandOver:
    """Give a hand-over up. NotFound: there is none with this number."""
    carrier = Carrier(clusters.records, clusters.doors(), app.clock.now_s)
    return carrier.give_up(number, _patience(app).wait)


# --- helpers, in order of use ---------------------------------------------------------------------


def _check(message: job_pb2.JobSpec, asked: Sequence[str]) -> None:
    """InvalidRequest: a job that refers to one cluster can go to that one only."""
    if len(asked) > 1 and message.HasField("dependency"):
        raise InvalidRequest(
            "a dependency names jobs of one cluster, and --to names several",
            hint="name this cluster alone: --to NAME",
        )


def _number(request_id: str) -> str:
    """The number of a hand-over that its user names; each of its keys has at most 64 characters."""
    if not request_id:
        return ""
    return f"u-{hashlib.sha256(request_id.encode()).hexdigest()[:32]}"


def _identified(message: job_pb2.JobSpec) -> bytes:
    """The content of a request without its begin, as masters compare repeats."""
    other = job_pb2.JobSpec()
    other.CopyFrom(message)
    other.ClearField("begin_time")
    return other.SerializeToString(deterministic=True)


def _patience(app: App) -> Patience:
    ids = RandomIds(app.clock)
    return Patience(app.settings.number("patience_s"), app.clock, ids.rng())


def new_number(app: App) -> str:
    """The number of a hand-over that nobody will repeat by name."""
    return RandomIds(app.clock).request_id()


def ranked_by(app: App, answers: Sequence[OfferAnswer], rule: str) -> Ranking:
    """The offers among these answers, in the order of this rule."""
    offers = [one for one in answers if isinstance(one, ClusterOffer)]
    return ranked(offers, RULES[rule], RandomIds(app.clock).rng())


def tell_open(app: App, clusters: Clusters) -> None:
    """Print open hand-overs, which no process carries on by itself."""
    still = [hand for hand in clusters.records.all() if hand.is_open]
    if still:
        count = "1 hand-over is" if len(still) == 1 else f"{len(still)} hand-overs are"
        app.say(f"{count} open ({still[0].name}, ...): dlq handovers")


def tell_offers(
    app: App,
    answers: Sequence[OfferAnswer],
    ranking: Ranking,
    chosen: Sequence[ClusterOffer],
    wishes: ManyWishes,
) -> None:
    """Print the table of offers; as JSON only if nothing else follows. `chosen`: the
    best, or none.
    """
    name = chosen[0].cluster if chosen else ""
    if not wishes.as_json:
        text = offers_text(answers, ranking.reasons, name, stderr_look(app))
        click.echo(text, nl=False, err=True)
    elif wishes.test_only or not chosen:
        facts = [offer_facts(answer, ranking.reasons) for answer in answers]
        click.echo(document({"offers": facts, "chosen": name or None, "rule": wishes.rule}))


def no_offer(answers: Sequence[OfferAnswer]) -> DlqError:
    """The failure that nothing was submitted anywhere, and why."""
    refused = [one for one in answers if isinstance(one, NoOffer) and not one.silent]
    told = tuple(f"{one.cluster}: {one.why}" for one in answers if isinstance(one, NoOffer))
    if len(refused) < len(answers):
        return Unavailable("no cluster has made an offer, and some are silent: " + "; ".join(told))
    if all(one.reason == Unsatisfiable.reason for one in refused):
        return Unsatisfiable("no cluster of the list could ever run this job", reasons=told)
    return error_from(refused[0].reason, "no cluster takes this job: " + "; ".join(told), {})
