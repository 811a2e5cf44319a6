"""Answers of clusters for one spec, as values. Instants are UTC seconds."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any, NamedTuple

HOUR_S = 3_600.0
GUARANTEED, UNGUARANTEED = "guaranteed", "unguaranteed"
# The reason of a cluster that does not know a field of the job yet, whichever job it is.
FORMER_RELEASE = "FAILED_PRECONDITION"


class TimeSpan(NamedTuple):
    """An uncertain instant. One time in ten it is earlier than the first value, one in ten later
    than the last.

    `inf`: later than the forecast reaches.
    """

    earliest_s: float
    likely_s: float
    latest_s: float


class ClusterOffer(NamedTuple):
    """A cluster would take the job. Without a forecast `start` and `end` are None, and `unknown`
    says why.
    """

    cluster: str
    start: TimeSpan | None = None
    end: TimeSpan | None = None
    basis: str = ""  # the source of its run time
    unknown: str = ""
    promise: str = ""  # the verdict of the forecast on its deadline; "": there is none
    promised_s: float | None = None
    gpus: int = 0
    price: float | None = None  # of a GPU-hour; None: the list names none
    late_s: float = 0.0  # so much later it counts, as jobs there have started later than foretold
    late_jobs: int = 0  # the jobs that this was measured by
    data_s: float = 0.0  # to stage its data first
    data_cost: float = 0.0  # of that way
    data_bytes: int = 0

    @property
    def told_start_s(self) -> float:
        """The likely start by the cluster's own words, with its data there."""
        return inf if self.start is None else self.start.likely_s + self.data_s

    @property
    def likely_start_s(self) -> float:
        return self.told_start_s + self.late_s

    @property
    def likely_end_s(self) -> float:
        return inf if self.end is None else self.end.likely_s + self.data_s + self.late_s

    @property
    def cost(self) -> float | None:
        """The cost of its GPUs from the likely start to the likely end, and of the data transfer.

        None: a price or a time is unknown.
        """
        time_s = self.likely_end_s - self.likely_start_s
        if self.price is None or not isfinite(time_s):
            return self.data_cost or None
        return self.price * self.gpus * max(0.0, time_s) / HOUR_S + self.data_cost


class NoOffer(NamedTuple):
    """A silent cluster, or one that refuses the job. `reason` is the word of its error."""

    cluster: str
    why: str
    reason: str = ""
    silent: bool = False


OfferAnswer = ClusterOffer | NoOffer


def believable(offer: ClusterOffer) -> ClusterOffer:
    """The offer without its promise, if the deadline is before the end as counted here.

    That end includes measured lateness and the data transfer, which the cluster's verdict does not
    know.
    """
    due_s = offer.promised_s
    if offer.promise != GUARANTEED or due_s is None or offer.likely_end_s <= due_s:
        return offer
    return offer._replace(promise="", promised_s=None)


def answer_facts(answer: OfferAnswer) -> dict[str, Any]:
    """An answer as JSON: null for unknown values, and for instants beyond the forecast."""
    if isinstance(answer, NoOffer):
        state = "silent" if answer.silent else "refused"
        return {
            "cluster": answer.cluster, "state": state, "why": answer.why, "reason": answer.reason,
        }  # fmt: skip
    return {
        "cluster": answer.cluster,
        "state": "offered",
        "start": _span_facts(answer.start),
        "end": _span_facts(answer.end),
        "basis": answer.basis or None,
        "unknown": answer.unknown or None,
        "promise": answer.promise or None,
        "promised_s": answer.promised_s,
        "gpus": answer.gpus,
        "price_per_gpu_hour": answer.price,
        "cost": None if answer.cost is None else round(answer.cost, 4),
        "late_s": answer.late_s,
        "late_jobs": answer.late_jobs,
        "data_s": answer.data_s,
        "data_cost": answer.data_cost,
        "data_bytes": answer.data_bytes,
    }


def answer_from(facts: Mapping[str, Any]) -> OfferAnswer:
    """An answer from its JSON. KeyError, TypeError or ValueError: it is none."""
    cluster, state = facts["cluster"], facts["state"]
    if state != "offered":
        return NoOffer(cluster, facts["why"], facts["reason"], silent=state == "silent")
    return ClusterOffer(
        cluster,
        _span_from(facts["start"]),
        _span_from(facts["end"]),
        facts["basis"] or "",
        facts["unknown"] or "",
        facts["promise"] or "",
        facts["promised_s"],
        facts["gpus"],
        facts["price_per_gpu_hour"],
        float(facts.get("late_s", 0.0)),  # records of the first release have none
        int(facts.get("late_jobs", 0)),
        float(facts.get("data_s", 0.0)),
        float(facts.get("data_cost", 0.0)),
        int(facts.get("data_bytes", 0)),
    )


def _span_facts(span: TimeSpan | None) -> dict[str, float | None] | None:
    if span is None:
        return None
    return {key: at_s if isfinite(at_s) else None for key, at_s in span._asdict().items()}


def _span_from(facts: Mapping[str, float | None] | None) -> TimeSpan | None:
    if facts is None:
        return None
    known = {key: inf if at_s is None else float(at_s) for key, at_s in facts.items()}
    return TimeSpan(**known)
