"""Reasons in words: the one place where a code and its numbers become a sentence for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from dlq_master.model.jobs.job import HoldKind, Job, Taken
from dlq_master.model.jobs.naming import shown_id
from dlq_master.model.why import BLOCKERS_NAMED, Reason, ReasonCode
from dlq_master.model.words.promise_words import no_promise

# Codes that say everything by themselves.
PLAIN: Mapping[ReasonCode, str] = {
    ReasonCode.NOT_ADMITTED: "it is accepted, and the next plan looks at it",
    ReasonCode.NO_NODES: "no node has registered yet",
    ReasonCode.STARTS_NEXT: "nothing is in its way: the next plan starts it",
    ReasonCode.FREEZE: (
        "too many nodes have vanished at once, or the master lags: nothing is queued again until "
        "they are back or an operator fences them"
    ),
    ReasonCode.MASTER_STARTING: "the master has just started and waits for its nodes",
    ReasonCode.FITS: "it fits",
    ReasonCode.TERM_OVER: "its term is over, and nobody who ranks before it needs the GPUs",
    ReasonCode.THRESHOLD_CROSSED: "its service has crossed the threshold of its level",
    ReasonCode.STARVED: "it has waited too long for what it has run",
    ReasonCode.ADMISSIBLE: "the registered nodes could hold it",
    ReasonCode.REPLANNED: "its slots are others now; its promise stands",
    ReasonCode.SLOT_OVER: "the next slot of the plan begins",
    ReasonCode.MAKES_WAY: "it goes on elsewhere, to leave room for others whose slot begins",
    ReasonCode.PROMISE_BROKEN: "no plan keeps its promise any more: it runs as best effort",
    ReasonCode.OVERRUN: (
        "it has run for longer than was reserved for it: it is promised nothing any more, and runs "
        "as best effort"
    ),
    ReasonCode.NOT_PROFILED: "nobody knows how long it runs: that is tried first",
    ReasonCode.RENTED: "being late would cost it more than the machine that was rented for it",
    ReasonCode.LENT: "its owner lends it",
    ReasonCode.ASKED_BACK: "a server that was lent is asked back",
    ReasonCode.EMPTY: "it was asked back, and nobody is left there",
    ReasonCode.LEARNED: "more is known of how jobs communicate",
}


def sentence(reason: Reason, job: Job, reader: str = "") -> str:
    """Why the job does not run (or was changed), as `reader` shall read it: "you" is the reader."""
    plain = PLAIN.get(reason.code)
    return _WRITERS[reason.code](reason, job, reader) if plain is None else plain


def _held_user(reason: Reason, job: Job, reader: str) -> str:
    return _held("held", reason, job, reader) + f" (dlq release {shown_id(job)})"


def _held_admin(reason: Reason, job: Job, reader: str) -> str:
    return _held("held", reason, job, reader) + " (only operators release it)"


def _paused(reason: Reason, job: Job, reader: str) -> str:
    return _held("paused", reason, job, reader) + f" (dlq resume {shown_id(job)})"


def _held(how: str, reason: Reason, job: Job, reader: str) -> str:
    who = f" by {'you' if job.held_by == reader else job.held_by}" if job.held_by else ""
    return f"{how}{who}" + (f": {reason.detail}" if reason.detail else "")


def _poison(reason: Reason, job: Job, _reader: str) -> str:
    lost = f"{job.infra_failures} attempts were" if job.infra_failures != 1 else "1 attempt was"
    cause = f" ({reason.detail})" if reason.detail else ""
    return (
        f"held by the master: {lost} lost to the cluster{cause} (dlq release {shown_id(job)}"
        " when that is mended)"
    )


def _dependency(reason: Reason, job: Job, _reader: str) -> str:
    if job.hold is not HoldKind.DEPENDENCY:
        return f"it waits for other jobs: {reason.detail}"
    return (
        f"its dependency can never come true: {reason.detail} (dlq update {shown_id(job)}"
        " dependency=none lets it start)"
    )


def _begin_time(reason: Reason, job: Job, _reader: str) -> str:
    at = datetime.fromtimestamp(job.begin_time_s or 0.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    left_s = reason.have or 0.0
    left = f"{left_s:.0f} s" if left_s < 120 else f"{timedelta(seconds=round(left_s))}"
    return f"it is not to begin before {at}, in {left}"


def _backoff(reason: Reason, job: Job, _reader: str) -> str:
    why = f" ({job.end_reason.value})" if job.end_reason is not None else ""
    where = f" on {reason.detail}" if reason.detail else ""
    return (
        f"the cluster failed its last attempt{where}{why}: it is tried again in"
        f" {reason.have or 0.0:.0f} s, elsewhere if it can be"
    )


def _failed_nodes(reason: Reason, _job: Job, _reader: str) -> str:
    return f"GPUs are free only where its attempts have failed ({reason.detail}); others exist"


def _maintenance(reason: Reason, _job: Job, _reader: str) -> str:
    return (
        f"GPUs are free only on nodes that are reserved before it would have ended: {reason.detail}"
    )


def _own_only(reason: Reason, _job: Job, _reader: str) -> str:
    return (
        f"GPUs are free only on nodes that are here for a time ({reason.detail}); a job with a "
        "deadline runs on the cluster's own"
    )


def _plan_failed(reason: Reason, _job: Job, _reader: str) -> str:
    return f"the scheduler's plans fail ({reason.detail}): nothing starts until that is mended"


def _array_limit(reason: Reason, _job: Job, _reader: str) -> str:
    return f"array {reason.detail} runs at most {_number(reason.have or 0)} tasks at a time"


def _no_such_shape(reason: Reason, _job: Job, _reader: str) -> str:
    known = "" if reason.have is None else f"; of one type there are {_number(reason.have)} in all"
    return f"{reason.detail}{known}"


def _resources(reason: Reason, job: Job, _reader: str) -> str:
    have = _number(reason.have or 0)
    free = {"0": "none is free", "1": "1 is free"}.get(have, f"{have} are free")
    block = f"; {reason.detail}" if reason.detail else ""
    return f"needs {_gpus(job)}, {free}{block}{_holders(reason)}"


def _fragmentation(reason: Reason, job: Job, _reader: str) -> str:
    return f"needs {_gpus(job)} {reason.detail}{_holders(reason)}"


def _consolidation(reason: Reason, job: Job, _reader: str) -> str:
    return f"waits to be kept together: needs {_gpus(job)} {reason.detail}{_holders(reason)}"


def _waiting_for_release(reason: Reason, job: Job, _reader: str) -> str:
    by = f" by {_jobs(reason)}" if reason.blocking_jobs else ""
    return f"its {_gpus(job)} are being saved or released{by}"


def _waiting_for_boundary(reason: Reason, job: Job, _reader: str) -> str:
    wait_s = reason.have or 0.0
    when = f"{wait_s:.0f} s" if wait_s < 120 else f"{wait_s / 60:.0f} min"
    return f"it takes {_gpus(job)} over at the next boundary, in {when}"


def _behind(reason: Reason, _job: Job, _reader: str) -> str:
    count = len(reason.blocking_jobs)
    if not count:
        return "jobs that rank before it come first"
    if count == 1:
        return f"{_jobs(reason)} ranks before it"
    least = "at least " if count >= BLOCKERS_NAMED else ""
    return f"{least}{count} jobs rank before it: {_ids(reason)}"


def _head_of_line(reason: Reason, _job: Job, _reader: str) -> str:
    return f"{_jobs(reason)} is first in line, and nobody passes it"


def _quota(reason: Reason, job: Job, _reader: str) -> str:
    held, limit = _number(reason.have or 0), _number(reason.need or 0)
    if reason.resource == "rest":
        return (
            f"others of {reason.detail} rank before it and take what is left of its quota: it "
            "borrows what nobody else needs"
        )
    if not reason.detail.startswith(("team ", f"{job.user} in team")):
        return f"needs {_gpus(job)}; of the {limit} that {reason.detail} may hold, {held} are taken"
    return (
        f"needs {_gpus(job)}; {reason.detail} has {limit} by right and holds {held}{_who(reason)}: "
        "it borrows what nobody else needs"
    )


def _team_limit(reason: Reason, job: Job, _reader: str) -> str:
    held, limit = _number(reason.have or 0), _number(reason.need or 0)
    if reason.resource == "rest":
        return f"others of {reason.detail} rank before it and take what it may still have"
    if reason.resource == "jobs":
        return f"{reason.detail} may run {limit} jobs at a time and runs {held}{_who(reason)}"
    if reason.resource == "width":
        return (
            f"needs {_gpus(job)}, and {reason.detail} may hold {limit} at most: it cannot "
            "start before that is raised"
        )
    return f"needs {_gpus(job)}; {reason.detail} may hold {limit} and holds {held}{_who(reason)}"


def _who(reason: Reason) -> str:
    return f" ({_jobs(reason)})" if reason.blocking_jobs else ""


def _reserved(reason: Reason, _job: Job, _reader: str) -> str:
    return f"free GPUs are kept for {_jobs(reason)}, promoted for having waited too long"


def _outranked(reason: Reason, _job: Job, _reader: str) -> str:
    rule = f" ({reason.detail})" if reason.detail else ""
    return f"{_jobs(reason)} ranks before it{rule} and needs its GPUs"


def _preempted(_reason: Reason, job: Job, reader: str) -> str:
    return "it ran before" if job.taken is None else preempted(job.taken, reader)


def _protected(reason: Reason, _job: Job, _reader: str) -> str:
    some = len(reason.blocking_jobs) > 1
    return (
        f"{_jobs(reason)} {'hold' if some else 'holds'} GPUs that it would take, and "
        f"{'are' if some else 'is'} protected for now: {reason.detail}"
    )


def preempted(taken: Taken, reader: str = "") -> str:
    """For whom a job left its GPUs, by which rule, and what that cost it."""
    named = "yours" if taken.user == reader else taken.user
    whose = f" ({named})" if taken.user else ""
    rule = f" by rule: {taken.rule}" if taken.rule else ""
    if taken.lost_s is None:
        return f"it is leaving its GPUs for job {taken.by}{whose}{rule}"
    lost_s = round(taken.lost_s)
    lost = f"lost {lost_s} s of work" if lost_s else "no work was lost"
    return f"preempted by job {taken.by}{whose}{rule}; {lost}"


def _resized(reason: Reason, _job: Job, _reader: str) -> str:
    return f"it goes on with {_number(reason.need or 0)} GPUs; it had {_number(reason.have or 0)}"


def _nodes_closed(reason: Reason, _job: Job, _reader: str) -> str:
    return f"it fits only when these nodes take new work again: {reason.detail}"


def _ended(reason: Reason, job: Job, _reader: str) -> str:
    return f"it has ended: {reason.detail or job.state.value}"


def _runtime(reason: Reason, _job: Job, _reader: str) -> str:
    return f"it has an image, and {reason.detail}"


def _constraint(reason: Reason, _job: Job, _reader: str) -> str:
    return f"it asks for {reason.detail or 'certain nodes'}"


def _detail(reason: Reason, job: Job, _reader: str) -> str:
    return reason.detail or f"no GPU of type {_types(job)} is free"


def _machine_coming(reason: Reason, _job: Job, _reader: str) -> str:
    return f"a machine is rented for it: {reason.detail}"


def _not_rented(reason: Reason, _job: Job, _reader: str) -> str:
    return f"nothing can be rented for it now: {reason.detail}"


def _guaranteed(_reason: Reason, job: Job, _reader: str) -> str:
    if job.promised is None or not job.slots:
        return "a deadline is promised, and a plan keeps it"
    return f"its deadline {job.promised + 1} is promised, and a plan keeps it"


def _submit_limit(reason: Reason, _job: Job, _reader: str) -> str:
    limit, sent = _number(reason.need or 0), _number(reason.have or 0)
    return (
        f"its user has {sent} GPUs in jobs that were just sent to be profiled, of {limit} at a "
        f"time: it is let in {reason.detail}"
    )


def _profiler_full(reason: Reason, _job: Job, _reader: str) -> str:
    limit, held = _number(reason.need or 0), _number(reason.have or 0)
    return f"it is to be profiled first: of the {limit} GPUs for that, {held} are taken"


def _kept_for_trials(reason: Reason, _job: Job, _reader: str) -> str:
    kept = _count(int(reason.have or 0), "free GPU")
    return f"{kept} {'is' if reason.have == 1 else 'are'} kept for jobs that have to be profiled"


def _ran_alike(reason: Reason, _job: Job, _reader: str) -> str:
    return f"it is not profiled: {reason.detail} have run alike"


def _measured(reason: Reason, _job: Job, _reader: str) -> str:
    return f"how long it runs is reckoned for {reason.detail}"


def _arrivals(reason: Reason, _job: Job, _reader: str) -> str:
    return f"{_count(int(reason.need or 0), 'GPU')} for trials in this hour: {reason.detail}"


def _unguaranteed(reason: Reason, job: Job, _reader: str) -> str:
    why = no_promise(reason.detail, job.alternative)
    return f"its deadline is not promised: {why}; it runs as best effort"


_WRITERS: Mapping[ReasonCode, Callable[[Reason, Job, str], str]] = {
    ReasonCode.GUARANTEED: _guaranteed,
    ReasonCode.UNGUARANTEED: _unguaranteed,
    ReasonCode.SUBMIT_LIMIT: _submit_limit,
    ReasonCode.PROFILER_FULL: _profiler_full,
    ReasonCode.KEPT_FOR_TRIALS: _kept_for_trials,
    ReasonCode.RAN_ALIKE: _ran_alike,
    ReasonCode.MEASURED: _measured,
    ReasonCode.ARRIVALS: _arrivals,
    ReasonCode.HELD_USER: _held_user,
    ReasonCode.HELD_ADMIN: _held_admin,
    ReasonCode.PAUSED: _paused,
    ReasonCode.POISON: _poison,
    ReasonCode.DEPENDENCY: _dependency,
    ReasonCode.BEGIN_TIME: _begin_time,
    ReasonCode.BACKOFF: _backoff,
    ReasonCode.PLAN_FAILED: _plan_failed,
    ReasonCode.FAILED_NODES: _failed_nodes,
    ReasonCode.MAINTENANCE: _maintenance,
    ReasonCode.OWN_ONLY: _own_only,
    ReasonCode.ARRAY_LIMIT: _array_limit,
    ReasonCode.NO_SUCH_SHAPE: _no_such_shape,
    ReasonCode.GPU_TYPE: _detail,
    ReasonCode.MACHINE_COMING: _machine_coming,
    ReasonCode.NOT_RENTED: _not_rented,
    ReasonCode.RUNTIME: _runtime,
    ReasonCode.CONSTRAINT: _constraint,
    ReasonCode.NODES_CLOSED: _nodes_closed,
    ReasonCode.RESOURCES: _resources,
    ReasonCode.FRAGMENTATION: _fragmentation,
    ReasonCode.CONSOLIDATION: _consolidation,
    ReasonCode.WAITING_FOR_RELEASE: _waiting_for_release,
    ReasonCode.WAITING_FOR_BOUNDARY: _waiting_for_boundary,
    ReasonCode.BEHIND_HIGHER_RANK: _behind,
    ReasonCode.HEAD_OF_LINE: _head_of_line,
    ReasonCode.QUOTA: _quota,
    ReasonCode.TEAM_LIMIT: _team_limit,
    ReasonCode.RESERVED_FOR: _reserved,
    ReasonCode.OUTRANKED: _outranked,
    ReasonCode.PREEMPTED: _preempted,
    ReasonCode.PROTECTED: _protected,
    ReasonCode.RESIZED: _resized,
    ReasonCode.ENDED: _ended,
}


def _types(job: Job) -> str:
    return " or ".join(job.request.gpu_types or ())


def _gpus(job: Job) -> str:
    kind = _types(job)
    return _count(job.request.gpus, "GPU") + (f" of type {kind}" if kind else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _holders(reason: Reason) -> str:
    if not reason.blocking_jobs:
        return ""
    hold = "holds" if len(reason.blocking_jobs) == 1 else "hold"
    return f"; {_jobs(reason)} {hold} GPUs it could use"


def _jobs(reason: Reason) -> str:
    return f"job{'' if len(reason.blocking_jobs) == 1 else 's'} {_ids(reason)}"


def _ids(reason: Reason) -> str:
    named = ", ".join(map(str, reason.blocking_jobs))
    return f"{named}, ..." if len(reason.blocking_jobs) >= BLOCKERS_NAMED else named


def _number(number: float) -> str:
    return f"{number:g}"
