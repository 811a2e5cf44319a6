"""Offers and hand-overs as text and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from dlq.v1 import forecast_pb2
from dlq_broker.handover import HandOver
from dlq_broker.offers import ClusterOffer, NoOffer, OfferAnswer, TimeSpan, answer_facts
from dlq_cli.app import App
from dlq_cli.facts.job import range_facts
from dlq_cli.output.render import Cell, OutputLook, clean_line, table
from dlq_cli.text.foreseen import short_range
from dlq_common.text.instants import format_instant
from dlq_common.text.units import format_duration
from dlq_common.text.wire import to_timestamp

OFFERS = (
    Cell("CLUSTER"),
    Cell("OFFER"),
    Cell("START"),
    Cell("END"),
    Cell("DEADLINE", drop=2),
    Cell("COST", right=True, drop=1),
    Cell("WHY", least=12),
)


def stderr_look(app: App) -> OutputLook:
    """The form of output on stderr: offers go there, and the job's name to stdout."""
    return OutputLook(tty=sys.stderr.isatty(), color=False, now_s=app.clock.now_s())


def offers_text(
    answers: Sequence[OfferAnswer], reasons: Mapping[str, str], chosen: str, look: OutputLook
) -> str:
    """A line for each cluster, the chosen one first."""
    ordered = sorted(answers, key=lambda answer: answer.cluster != chosen)
    return table(OFFERS, [_row(answer, reasons, chosen, look) for answer in ordered], look)


def _row(
    answer: OfferAnswer, reasons: Mapping[str, str], chosen: str, look: OutputLook
) -> list[str]:
    if isinstance(answer, NoOffer):
        state = "silent" if answer.silent else "refused"
        return [answer.cluster, state, "", "", "", "", clean_line(answer.why)]
    return [
        answer.cluster,
        "chosen" if answer.cluster == chosen else "offered",
        _span(answer.start, look),
        _span(answer.end, look),
        answer.promise,
        "" if answer.cost is None else f"{answer.cost:.2f}",
        clean_line(reasons.get(answer.cluster, "") + _lateness_words(answer) + data_words(answer)),
    ]


def _lateness_words(offer: ClusterOffer) -> str:
    """The words for an offer that counts later than its cluster says."""
    if not offer.late_s:
        return ""
    last = "its last job" if offer.late_jobs == 1 else f"its last {offer.late_jobs} jobs"
    return f"; counts {format_duration(offer.late_s)} later than offered, as {last} started late"


def data_words(offer: ClusterOffer) -> str:
    """The words for an offer that begins with staging."""
    if not offer.data_bytes:
        return ""
    span = format_duration(offer.data_s)
    return f"; {offer.data_bytes / 1e9:.1f} GB of data come first, in about {span}"


def _span(span: TimeSpan | None, look: OutputLook) -> str:
    return "" if span is None else short_range(_message(span), look)


def _message(span: TimeSpan) -> forecast_pb2.TimeRange:
    told = [to_timestamp(at_s) if isfinite(at_s) else None for at_s in span]
    return forecast_pb2.TimeRange(earliest_time=told[0], likely_time=told[1], latest_time=told[2])


def offer_facts(answer: OfferAnswer, reasons: Mapping[str, str]) -> dict[str, Any]:
    """An answer with the same keys for every answer, null for unknown values."""
    offer = answer if isinstance(answer, ClusterOffer) else ClusterOffer(answer.cluster)
    refused = answer if isinstance(answer, NoOffer) else NoOffer(answer.cluster, "")
    due_s = offer.promised_s
    return {
        "cluster": answer.cluster,
        "state": answer_facts(answer)["state"],
        "start": None if offer.start is None else range_facts(_message(offer.start)),
        "end": None if offer.end is None else range_facts(_message(offer.end)),
        "basis": offer.basis or None,
        "missing": offer.unknown or None,
        "promise_state": offer.promise or None,
        "promised_time": None if due_s is None else format_instant(due_s),
        "cost": None if offer.cost is None else round(offer.cost, 4),
        "late_seconds": offer.late_s or None,
        "late_job_count": offer.late_jobs or None,
        "data_bytes": offer.data_bytes or None,
        "data_seconds": offer.data_s or None,
        "error": refused.reason or None,
        "why": refused.why or reasons.get(answer.cluster),
    }


def handover_facts(hand: HandOver) -> dict[str, Any]:
    """A hand-over with the offers that it began with."""
    reasons = dict(hand.reasons)
    return {
        "handover_id": hand.number,
        "state": hand.state.value,
        "name": hand.name,
        "cluster": hand.cluster if hand.job or hand.is_open else None,
        "job_id": hand.job or None,
        "global_name": hand.global_name or None,
        "moved_from": None if hand.moving is None else hand.moving.global_name,
        "make_time": format_instant(hand.made_s),
        "offers": [offer_facts(answer, reasons) for answer in hand.answers],
        "story": list(hand.story),
    }
