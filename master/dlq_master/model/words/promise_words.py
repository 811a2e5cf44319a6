"""Promises of deadlines, in words: the one place where a verdict and its numbers become a
sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Alternative, Job, JobState

_BEST_EFFORT = "it runs as best effort"
NAMED = 3  # of several jobs or nodes
# Ground of a verdict -> why nothing is promised.
_NO_PROMISE = {
    "quota": "its team has promised GPUs enough",
    "worth": "more is asked for than there is, and others earn more with as many GPUs",
    "type": "it may get GPUs of several types, and how long it runs was measured on one",
    "keeps": "it cannot save, and a plan may stop it",
    "width": "it wants more GPUs than the cluster has for promises",
    "reach": "its deadline is too early even if it were alone, counted in whole leases",
    "fluid": "promises that were made before leave too few GPUs until its deadline",
    "plan": "no slots were found for it beside the promises that were made before",
    "proven": "the program has no solution that keeps it beside the promises that were made before",
    "limit": "no answer of the program within the limit, and its cached solution has no room",
    "overrun": "it has used up what was reserved for it, and has not ended",
    "broken": "it was promised, and no plan keeps that any more",
}


def promise(
    job: Job, state: str, run_time: str, risk: str = "", delay: str = "", policy: str = ""
) -> str:
    """The promise of a job's deadlines, by the word of its state (dlq.v1.Promise); once the job has
    completed, the outcome. `run_time`: the knowledge of how long it runs; `risk`: why the promise
    may not be kept; `delay`: why it is not judged, if more is needed than time; `policy`: the name
    of the cluster's.
    """
    said = _said(job, state, run_time, risk, delay, policy)
    return f"{said}; {kept(job)}" if kept(job) else said


def no_promise(ground: str, instead: Alternative | None = None) -> str:
    """Why nothing is promised: the ground of a verdict in words, with its known numbers."""
    words = _NO_PROMISE.get(ground, ground)
    told = "" if instead is None else _told(ground, instead)
    return f"{words} ({told})" if told else words


def kept(job: Job) -> str:
    """By how much a completed job met or missed its deadline; empty: neither."""
    if job.state is not JobState.COMPLETED or job.end_time_s is None or not job.steps:
        return ""
    last = len(job.steps) - 1 if job.promised is None else job.promised
    # One that is earlier, and worth more, may have been met too.
    step = next((at for at in range(last) if due_s(job, at) >= job.end_time_s), last)
    which = "its deadline" if len(job.steps) == 1 else f"deadline {step + 1}"
    which, met = (
        (which.replace("its deadline", "it"), "kept") if step == job.promised else (which, "met")
    )
    early_s = due_s(job, step) - job.end_time_s
    if early_s >= 0:
        return f"{which} was {met} {span(early_s)} early"
    return f"{which} was missed by {span(-early_s)}"


def span(seconds: float) -> str:
    """A time for people, in whole seconds: `1:30:00`, `2 days, 0:00:10`."""
    return str(timedelta(seconds=round(seconds)))


def few(words: Sequence[str]) -> str:
    more = len(words) - NAMED
    return ", ".join([*words[:NAMED], *([f"{more} more"] if more > 0 else [])])


# --- helpers, in order of use ---------------------------------------------------------------------


def _said(job: Job, state: str, run_time: str, risk: str, delay: str, policy: str) -> str:
    match state:
        case "guaranteed":
            which = "its deadline" if len(job.steps) == 1 else f"its deadline {job.promised + 1}"  # type: ignore[operator]  # it has one
            on = f" on {job.gpu_type_promised}" if job.request.or_gpu_types else ""
            if job.ended:
                return f"{which} was promised{on}"
            kept_by = f"but is at risk: {risk}" if risk else "and a plan keeps it"
            return f"{which} is promised{on}, {kept_by}"
        case "unguaranteed":
            why = no_promise(job.verdict, job.alternative)
            if job.ended:
                return f"nothing was promised: {why}"
            has_slot = job.band is Band.SLO
            goes = "it has this slot, which no promise needs" if has_slot else _BEST_EFFORT
            return f"nothing is promised: {why}; {goes}"
        case "run_time_unknown":
            return (
                f"nothing can be promised until it is known how long it runs: {run_time}; it "
                "runs by the order"
            )
        case "not_offered":
            which = f"this cluster's policy, {policy}," if policy else "the policy"
            return f"{which} promises no deadlines; it runs by the order"
    if job.ended:
        return "it ended before it was judged"
    why = delay if job.timed else run_time
    return f"not judged yet: {why}; until then it runs by the order" if why else "not judged yet"


def _told(ground: str, instead: Alternative) -> str:
    """The numbers of a refusal: the request, and the capacity."""
    need, have = instead.need, instead.have
    if ground == "type":
        return f"there are {instead.detail}; --gpu-type names one" if instead.detail else ""
    if ground in ("broken", "overrun"):
        return instead.detail
    writer = _NUMBERS.get(ground)
    return "" if writer is None or need is None or have is None else writer(need, have)


def _gpus(number: float) -> str:
    return f"{number:g} GPU" if number == 1 else f"{number:g} GPUs"


def _width(need: float, have: float) -> str:
    return f"it takes {_gpus(need)}, counted in whole blocks, and new promises may use {have:g}"


def _quota(need: float, have: float) -> str:
    return f"with it they would be {_gpus(need)}, of {have:g} that the team may have promised"


def _reach(need: float, have: float) -> str:
    left = span(have) if have > 0 else "nothing"
    return (
        f"with its margin and a pause it needs {span(need)}, and from the next slot on {left} "
        "is left"
    )


def _slots(need: float, have: float) -> str:
    return f"it needs {need:g} slots until then, and {have:g} have GPUs enough left"


def _worth(need: float, have: float) -> str:
    return f"it earns {have:.3g} for a GPU and slot, others {need:.3g}"


_NUMBERS: Mapping[str, Callable[[float, float], str]] = {
    "width": _width,
    "quota": _quota,
    "reach": _reach,
    "fluid": _slots,
    "plan": _slots,
    "proven": _slots,
    "limit": _slots,
    "worth": _worth,
}
