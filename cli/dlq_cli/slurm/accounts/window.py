"""The filters of sacct: the window of time, states and other options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from dlq_cli.lists.slurm_states import account_state, wanted
from dlq_cli.output.said import SlurmSays
from dlq_cli.output.zone import LocalZone
from dlq_cli.slurm.job_words import instant_s
from dlq_cli.slurm.jobs.seen import QOS, SeenJob
from dlq_cli.slurm.words import SlurmWords
from dlq_common.text.hostlist import expand_hostlist
from dlq_common.text.instants import parse_instant
from dlq_common.text.units import DAY

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD"})
_RUNS = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING"})


class SacctWindow(NamedTuple):
    """Seconds since the epoch; `before_s` counts still."""

    from_s: float
    before_s: float


def window_of(given: SlurmWords, now_s: float) -> SacctWindow:
    """Slurm's: today; with --jobs all; with --state and no end the one instant of the start."""
    start, end = given.options.get("starttime"), given.options.get("endtime")
    states = bool(given.listed("state"))
    from_s = since(start, now_s) if start else None
    before_s = since(end, now_s) if end else None
    if from_s is None and states and not given.listed("jobs"):
        from_s = before_s or now_s
    if from_s is None:
        from_s = 0.0 if given.listed("jobs") else midnight_s(now_s)
    if before_s is None:
        before_s = from_s if states and start else now_s
    if from_s > before_s:
        raise SlurmSays(
            f"sacct: error: Start time ({instant_s(from_s, '0')}) requested is after end time "
            f"({instant_s(before_s, '0')})."
        )
    return SacctWindow(from_s, before_s)


def since(text: str, now_s: float) -> float:
    """An instant of `-S` or `-E`: a date, a time of day that has been, now-2days. SlurmSays."""
    head, minus, span = text.strip().lower().partition("now-")
    try:
        if minus and not head:
            return now_s - parse_instant(f"now+{span}", now_s=0.0, zone=LocalZone())
        if head in {"today", "midnight"}:
            head = "00:00"
        at_s = parse_instant(head, now_s=now_s, zone=LocalZone())
        is_time_of_day = head == "noon" or ("-" not in head and ":" in head)
        return at_s - DAY if is_time_of_day and at_s > now_s else at_s
    except ValueError:
        raise SlurmSays(f"Invalid time specification (pos=0): {text[:40]}") from None


def midnight_s(now_s: float) -> float:
    """The beginning of today here: sacct's default."""
    today = datetime.fromtimestamp(now_s, LocalZone())
    return today.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def keeper(
    given: SlurmWords, window: SacctWindow, users: Sequence[str]
) -> Callable[[SeenJob], bool]:
    """Whether sacct shows a job."""
    states = wanted("sacct", given.listed("state"))
    qos = given.listed("qos")
    for name in qos:
        if name != QOS:
            raise SlurmSays(
                f"sacct: error: You gave a bad qos '{name[:40]}'. Valid QOS's are {QOS}",
                "sacct: fatal: problem processing qos list",
            )
    nodes = set(expand_hostlist(given.options["nodelist"])) if given.listed("nodelist") else set()
    lists = {name: given.listed(name) for name in ("name", "partition", "accounts", "group")}
    named = bool(given.listed("jobs"))

    def keep(job: SeenJob) -> bool:
        return (
            (named or not users or job.job.user in users)
            and (not users or job.job.user in users)
            and (named or _is_in(job, window))
            and (not states or _is_of(job, states, window))
            and _is_listed(job, lists)
            and (not nodes or bool(nodes & set(job.nodes)))
        )

    return keep


def _is_listed(job: SeenJob, lists: dict[str, list[str]]) -> bool:
    texts = {
        "name": (job.job.name,), "partition": (job.job.queue,), "accounts": (job.account,),
        "group": (job.group, str(job.gid)),
    }  # fmt: skip
    return all(not words or set(words) & set(texts[name]) for name, words in lists.items())


def _is_in(job: SeenJob, window: SacctWindow) -> bool:
    """It could have run in the window, and had not ended before."""
    eligible_s = job.began_s or job.eligible_s
    if not eligible_s or eligible_s > window.before_s:
        return False
    return not job.ended or job.end_s >= window.from_s


def _is_of(job: SeenJob, states: frozenset[str], window: SacctWindow) -> bool:
    """In one of these states at some time of the window."""
    start_s = job.began_s
    ends_s = job.end_s if job.ended else float("inf")
    if states & _WAITING and job.eligible_s and job.eligible_s <= window.before_s:
        waits_until_s = start_s or ends_s
        if waits_until_s > window.from_s:
            return True
    if states & _RUNS and start_s and start_s <= window.before_s and ends_s >= window.from_s:
        return True
    ended = job.ended and window.from_s <= job.end_s <= window.before_s
    return ended and account_state(job.job) in states
