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
        "many nodes vanished at once, or the master lags: nothing is queued again until they are "
        "back or fenced, or [lease] freeze_longest is over"
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
# Codes whose sentence has the words of `_words` in it.
_TEMPLATES: Mapping[ReasonCode, str] = {
    ReasonCode.RAN_ALIKE: "it is not profiled: {detail} have run alike",
    ReasonCode.MEASURED: "how long it runs is reckoned for {detail}",
    ReasonCode.PROFILER_FULL: (
        "it is to be profiled first: of the {need} GPUs for that, {have} are taken"
    ),
    ReasonCode.SUBMIT_LIMIT: (
        "its user has {have} GPUs in jobs that were just sent to be profiled, of {need} at a time: "
        "it is let in {detail}"
    ),
    ReasonCode.PLAN_FAILED: (
        "the scheduler's plans fail ({detail}): nothing starts until that is mended"
    ),
    ReasonCode.FAILED_NODES: (
        "GPUs are free only where its attempts have failed ({detail}); others exist"
    ),
    ReasonCode.MAINTENANCE: (
        "GPUs are free only on nodes that are reserved before it would have ended: {detail}"
    ),
    ReasonCode.OWN_ONLY: (
        "GPUs are free only on nodes that are here for a time ({detail}); a job with a deadline "
        "runs on the cluster's own"
    ),
    ReasonCode.GROUP: "its group starts as a whole, and {detail}",
    ReasonCode.ARRAY_LIMIT: "array {detail} runs at most {have} tasks at a time",
    ReasonCode.MACHINE_COMING: "a machine is rented for it: {detail}",
    ReasonCode.NOT_RENTED: "nothing can be rented for it now: {detail}",
    ReasonCode.RUNTIME: "it has an image, and {detail}",
    ReasonCode.SUSPENDED: "it is off its GPUs without a save, {detail}{holders}",
    ReasonCode.NODES_CLOSED: "it fits only when these nodes take new work again: {detail}",
    ReasonCode.FRAGMENTATION: "needs {gpus} {detail}{holders}",
    ReasonCode.CONSOLIDATION: "waits to be kept together: needs {gpus} {detail}{holders}",
    ReasonCode.HEAD_OF_LINE: "{jobs} is first in line, and nobody passes it",
    ReasonCode.RESERVED_FOR: ("free GPUs are kept for {jobs}, promoted for having waited too long"),
    ReasonCode.RESIZED: "it goes on with {need} GPUs; it had {have}",
    ReasonCode.OUTRANKED: "{jobs} ranks before it{because} and needs its GPUs",
    ReasonCode.RESOURCES: "needs {gpus}, {free}{block}{holders}",
    ReasonCode.WAITING_FOR_RELEASE: "its {gpus} are being saved or released{by}",
    ReasonCode.POISON: (
        "held by the master: {lost}{because} (dlq release {id} when that is mended)"
    ),
    ReasonCode.TEAM_LIMIT: "needs {gpus}; {detail} may hold {need} and holds {have}{who}",
    ReasonCode.QUOTA: (
        "needs {gpus}; {detail} has {need} by right and holds {have}{who}: it borrows what nobody "
        "else needs"
    ),
    ReasonCode.HELD_USER: "held{held} (dlq release {id})",
    ReasonCode.HELD_ADMIN: "held{held} (only operators release it)",
    ReasonCode.PAUSED: "paused{held} (dlq resume {id})",
}
# The same, of a resource that the reason names.
_OF_RESOURCE: Mapping[tuple[ReasonCode, str], str] = {
    (ReasonCode.QUOTA, "rest"): (
        "others of {detail} rank before it and take what is left of its quota: it borrows what "
        "nobody else needs"
    ),
    (ReasonCode.TEAM_LIMIT, "rest"): (
        "others of {detail} rank before it and take what it may still have"
    ),
    (ReasonCode.TEAM_LIMIT, "jobs"): "{detail} may run {need} jobs at a time and runs {have}{who}",
    (ReasonCode.TEAM_LIMIT, "width"): (
        "needs {gpus}, and {detail} may hold {need} at most: it cannot start before that is raised"
    ),
}
_OF_A_QUEUE = "needs {gpus}; of the {need} that {detail} may hold, {have} are taken"


def sentence(reason: Reason, job: Job, reader: str = "") -> str:
    """Why the job does not run (or was changed), as `reader` shall read it: "you" is the reader."""
    told = _sentence(reason, job, reader)
    return told.replace("GPUs", "cores") if job.request.without_gpus else told


def _sentence(reason: Reason, job: Job, reader: str) -> str:
    code = reason.code
    if code in PLAIN:
        return PLAIN[code]
    if code in _WRITERS:
        return _WRITERS[code](reason, job, reader)
    template = _OF_RESOURCE.get((code, reason.resource)) or _TEMPLATES[code]
    if template is _TEMPLATES[ReasonCode.QUOTA] and not _of_team(reason, job):
        template = _OF_A_QUEUE
    return template.format_map(_words(reason, job, reader))


def _of_team(reason: Reason, job: Job) -> bool:
    return reason.detail.startswith(("team ", f"{job.user} in team"))


def _words(reason: Reason, job: Job, reader: str) -> Mapping[str, str]:
    have, jobs, detail = _number(reason.have or 0), _jobs(reason), reason.detail
    return {
        "id": shown_id(job),
        "detail": detail,
        "because": f" ({detail})" if detail else "",
        "block": f"; {detail}" if detail else "",
        "have": have,
        "need": _number(reason.need or 0),
        "free": {"0": "none is free", "1": "1 is free"}.get(have, f"{have} are free"),
        "gpus": _gpus(job),
        "jobs": jobs,
        "who": f" ({jobs})" if reason.blocking_jobs else "",
        "by": f" by {jobs}" if reason.blocking_jobs else "",
        "holders": _holders(reason),
        "held": _held(reason, job, reader),
        "lost": _lost(job),
    }


def _lost(job: Job) -> str:
    """The limit that was met: the common one of the cluster's failures, or that of one cause."""
    if job.infra_failures < job.rules.max_infra_failures:
        return "it has met a limit of its restarts"
    attempts = "1 attempt was" if job.infra_failures == 1 else f"{job.infra_failures} attempts were"
    return f"{attempts} lost to the cluster"


def _held(reason: Reason, job: Job, reader: str) -> str:
    who = f" by {'you' if job.held_by == reader else job.held_by}" if job.held_by else ""
    return f"{who}: {reason.detail}" if reason.detail else who


def _dependency(reason: Reason, job: Job, _reader: str) -> str:
    if job.hold is not HoldKind.DEPENDENCY:
        return f"it waits for other jobs: {reason.detail}"
    return (
        f"its dependency can never come true: {reason.detail} (dlq update {shown_id(job)}"
        " dependency=none lets it start)"
    )


def _begin_time(reason: Reason, job: Job, _reader: str) -> str:
    at = _instant(job.begin_time_s or 0.0)
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


def _no_such_shape(reason: Reason, job: Job, _reader: str) -> str:
    if job.request.without_gpus:
        return reason.detail
    known = "" if reason.have is None else f"; of one type there are {_number(reason.have)} in all"
    return f"{reason.detail}{known}"


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
    lost = f"lost up to {lost_s} s of work" if lost_s else "no work was lost"
    return f"preempted by job {taken.by}{whose}{rule}; {lost}"


def _ended(reason: Reason, job: Job, _reader: str) -> str:
    return f"it has ended: {reason.detail or job.state.value}"


def _constraint(reason: Reason, _job: Job, _reader: str) -> str:
    return f"it asks for {reason.detail or 'certain nodes'}"


def _detail(reason: Reason, job: Job, _reader: str) -> str:
    return reason.detail or f"no GPU of type {_types(job)} is free"


def _guaranteed(_reason: Reason, job: Job, _reader: str) -> str:
    if job.promised is None or not job.slots:
        return "a deadline is promised, and a plan keeps it"
    return f"its deadline {job.promised + 1} is promised, and a plan keeps it"


def _kept_for_trials(reason: Reason, _job: Job, _reader: str) -> str:
    kept = _count(int(reason.have or 0), "free GPU")
    return f"{kept} {'is' if reason.have == 1 else 'are'} kept for jobs that have to be profiled"


def _kept_for_queue(reason: Reason, _job: Job, _reader: str) -> str:
    kept = _count(int(reason.have or 0), "free GPU")
    return f"{kept} {'is' if reason.have == 1 else 'are'} kept for jobs of queue {reason.detail}"


def _kept_gpus(reason: Reason, job: Job, _reader: str) -> str:
    have, need = _number(reason.have or 0), _number(reason.need or 0)
    if reason.resource == "started":
        return f"it goes on with {need} GPUs; {have} were kept for it {reason.detail}"
    if job.job_id not in reason.blocking_jobs:
        return f"{have} free GPUs are kept for {_jobs(reason)}, which lost a node"
    until = "" if job.kept is None else _instant(job.kept.until_s)
    lost = "it lost a node" if job.group is None else "its group lost a node"
    return (
        f"{lost}: {have} of its {need} GPUs are kept for it {reason.detail} until {until}, "
        "and it is first in line for the others"
    )


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _arrivals(reason: Reason, _job: Job, _reader: str) -> str:
    return f"{_count(int(reason.need or 0), 'GPU')} for trials in this hour: {reason.detail}"


def _unguaranteed(reason: Reason, job: Job, _reader: str) -> str:
    why = no_promise(reason.detail, job.alternative)
    return f"its deadline is not promised: {why}; it runs as best effort"


_WRITERS: Mapping[ReasonCode, Callable[[Reason, Job, str], str]] = {
    ReasonCode.GUARANTEED: _guaranteed,
    ReasonCode.UNGUARANTEED: _unguaranteed,
    ReasonCode.KEPT_FOR_TRIALS: _kept_for_trials,
    ReasonCode.KEPT_FOR_QUEUE: _kept_for_queue,
    ReasonCode.KEPT_GPUS: _kept_gpus,
    ReasonCode.ARRIVALS: _arrivals,
    ReasonCode.DEPENDENCY: _dependency,
    ReasonCode.BEGIN_TIME: _begin_time,
    ReasonCode.BACKOFF: _backoff,
    ReasonCode.NO_SUCH_SHAPE: _no_such_shape,
    ReasonCode.GPU_TYPE: _detail,
    ReasonCode.CONSTRAINT: _constraint,
    ReasonCode.WAITING_FOR_BOUNDARY: _waiting_for_boundary,
    ReasonCode.BEHIND_HIGHER_RANK: _behind,
    ReasonCode.PREEMPTED: _preempted,
    ReasonCode.PROTECTED: _protected,
    ReasonCode.ENDED: _ended,
}


def _types(job: Job) -> str:
    return " or ".join(job.request.gpu_types or ())


def _gpus(job: Job) -> str:
    if job.request.without_gpus:
        return _count(job.request.cores, "core")
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
