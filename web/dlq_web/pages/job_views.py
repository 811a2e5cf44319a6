"""The parts of a job's page, made of the master's answers with the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dlq.v1 import event_pb2, job_pb2, job_service_pb2
from dlq_cli.lists.story import end_note_text, failure_text, job_pairs, reason_text, spec_pairs
from dlq_cli.output.render import OutputLook, clean_line, moment, sentence
from dlq_cli.text.foreseen import long_range
from dlq_cli.text.promises import promise_pairs
from dlq_common.text.units import format_duration
from dlq_common.text.wire import from_duration, from_timestamp

BAR = 1000  # the width of a bar, in its own units
MOST_STORY = 20  # events on the page, the newest
Pairs = list[tuple[str, str]]

# The facts that have a place of their own on the page, by the names of the command line.
_SAVING = ("checkpoint", "unsaved work", "next grace", "a stop costs", "lost")
_SPEED = ("run time", "progress", "estimate", "speed by size", "elastic")
_PREEMPTED = ("preemptions", "preempted")
# The page that shows the cause of a reason.
CAUSES: Mapping[str, tuple[str, str]] = {
    "maintenance": ("/future", "reservations"),
    "reserved_for": ("/future", "the next hours"),
    **dict.fromkeys(
        (
            "no_nodes", "no_such_shape", "runtime", "constraint", "gpu_type", "nodes_closed",
            "failed_nodes", "resources", "fragmentation", "freeze",
        ),
        ("/nodes", "the nodes"),
    ),
    **dict.fromkeys(("quota", "team_limit"), ("/use", "the use of teams")),
    "behind_higher_rank": ("/jobs", "the queue"),
    "head_of_line": ("/jobs", "the queue"),
}  # fmt: skip


class ShownReason(NamedTuple):
    """A reason for a job not to run, and the way to its cause."""

    code: str
    text: str
    spent: str
    jobs: Sequence[tuple[str, bool, str]]  # in the way: number, whether its page opens, its owner
    cause: tuple[str, str] | None  # a page and its name


class Share(NamedTuple):
    """A part of a bar."""

    label: str
    seconds: float
    left: int
    width: int


class Cards(NamedTuple):
    """The facts of a job by their place on the page."""

    promise: Pairs
    saving: Pairs
    speed: Pairs
    rest: Pairs


class OutputChoice(NamedTuple):
    """The outputs of a job, and the first to show."""

    attempts: int
    ranks: int
    rank: int  # of the rank that failed first, else 0


def cards_of(answer: job_service_pb2.GetJobResponse, look: OutputLook) -> Cards:
    """The known facts of a job and of its spec."""
    job = answer.job
    asked = promise_pairs(job.promise, look) if job.HasField("promise") else ()
    promise = [(name, clean_line(text)) for name, text in asked if text]
    told = {name: clean_line(text) for name, text in job_pairs(job, look) if text}
    placed = {*_SAVING, *_SPEED, *_PREEMPTED, *(name for name, _ in promise)}
    rest = [(name, text) for name, text in told.items() if name not in placed]
    rest += [(name, clean_line(text)) for name, text in spec_pairs(answer.spec) if text]
    return Cards(promise, _chosen(told, _SAVING), _chosen(told, _SPEED), rest)


def preempted_of(job: job_pb2.Job) -> str:
    """The job that took its GPUs last; empty: none did."""
    return job.last_preemption.for_job_id if job.HasField("last_preemption") else ""


def reasons_of(
    answer: job_service_pb2.ExplainJobResponse, look: OutputLook, *, every: bool
) -> list[ShownReason]:
    """Every reason with its sentence. `every`: the pages of all users' jobs open."""
    return [_reason(one, answer.job.user, look, every=every) for one in answer.reasons]


def depends_of(job: job_pb2.Job) -> list[str]:
    """The jobs for which it waits."""
    return list(dict.fromkeys(re.findall(r":(\d+(?:_\d+)?)", job.dependency)))


def waits_of(answer: job_service_pb2.ExplainJobResponse) -> list[Share]:
    """Why a job has waited, as the parts of one bar; nothing for a wait of under a second."""
    parts = [
        (f"{one.code} {clean_line(one.subject)}".strip(), from_duration(one.main_duration))
        for one in answer.waits
    ]
    return _bar(parts)


def lease_of(living: job_pb2.Attempt | None, look: OutputLook) -> tuple[list[Share], Pairs]:
    """The lease of the living attempt as a bar, and its instants in words; nothing without one."""
    if living is None or not living.lease.HasField("term_end_time"):
        return [], []
    began_s, term_s = (
        from_timestamp(living.assign_time),
        from_timestamp(living.lease.term_end_time),
    )
    hold_s = from_timestamp(living.lease.hold_until_time)
    parts = [
        ("held so far", look.now_s - began_s),
        ("left of the term", term_s - look.now_s),
        ("more, if the master stays silent", hold_s - max(term_s, look.now_s)),
    ]
    words = [("its GPUs since", moment(began_s, look)), ("term ends", moment(term_s, look))]
    if hold_s:
        words.append(("may run without the master until", moment(hold_s, look)))
    return _bar(parts), words


def event_rows(events: Iterable[event_pb2.Event], look: OutputLook) -> list[tuple[str, str, str]]:
    """The newest events first: instant, kind, cause."""
    found = [
        (moment(from_timestamp(one.event_time), look), one.kind, sentence(one.cause, look))
        for one in events
    ]
    return found[-MOST_STORY:][::-1]


def ending_of(attempts: Sequence[job_pb2.Attempt]) -> str:
    """The last words of a job's last attempt, and the last lines of the rank that failed."""
    return f"{end_note_text(attempts)}{failure_text(attempts)}".strip()


def output_of(attempts: Sequence[job_pb2.Attempt]) -> OutputChoice | None:
    """The outputs of all attempts; None: there is none yet."""
    if not attempts:
        return None
    ranks = max(len(one.ranks) for one in attempts)
    return OutputChoice(attempts[-1].attempt, max(1, ranks), attempts[-1].first_failed_rank)


def start_of(job: job_pb2.Job, look: OutputLook) -> str:
    """When a waiting job is likely to start, as a range."""
    return long_range(job.start_estimate, look) if job.HasField("start_estimate") else ""


def _reason(one: job_pb2.WaitReason, owner: str, look: OutputLook, *, every: bool) -> ShownReason:
    users = [clean_line(user) for user in one.blocking_users]
    named = [*users, *[""] * (len(one.blocking_job_ids) - len(users))]
    spent = format_duration(from_duration(one.spent_duration))
    return ShownReason(
        one.code,
        reason_text(one, look),
        spent if one.HasField("spent_duration") else "",
        [
            (job, every or user == owner, "" if user == owner else user)
            for job, user in zip(one.blocking_job_ids, named, strict=True)
        ],
        CAUSES.get(one.code),
    )


def _chosen(told: Mapping[str, str], names: Sequence[str]) -> Pairs:
    return [(name, told[name]) for name in names if name in told]


def _bar(parts: Sequence[tuple[str, float]]) -> list[Share]:
    """The parts side by side; nothing where all of them are under a second."""
    total_s = sum(max(0.0, seconds) for _, seconds in parts)
    if total_s < 1:
        return []
    shares, left = [], 0
    for words, seconds in parts:
        width = round(BAR * max(0.0, seconds) / total_s)
        if width:
            shares.append(Share(f"{words}: {format_duration(seconds)}", seconds, left, width))
            left += width
    return shares
