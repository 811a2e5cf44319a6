"""sacct's fields: names, widths and texts as Slurm prints them. dlq keeps no accounts of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from dlq.v1 import job_pb2
from dlq_cli.lists.slurm_states import account_state
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.zone import LocalZone
from dlq_cli.slurm import job_words as words
from dlq_common.errors import InvalidRequest
from dlq_common.text.instants import parse_instant
from dlq_common.text.units import DAY
from dlq_common.text.wire import from_duration
from dlq_compat.job_page import clock, size, tres

DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF = "JobID,State,ExitCode"
_UNKNOWN = "Unknown"


class SacctField(NamedTuple):
    """One column: its width, and the text of a job; `cluster` is the cluster's name."""

    width: int
    text: Callable[[job_pb2.Job, str], str]


def _plain(width: int, text: Callable[[job_pb2.Job], str]) -> SacctField:
    return SacctField(width, lambda job, _: text(job))


def _elapsed_s(job: job_pb2.Job) -> int:
    return int(from_duration(job.run_duration))


def _had_nodes(job: job_pb2.Job) -> bool:
    return bool(job.node_ids) or job.HasField("start_time")


def _cpus(job: job_pb2.Job) -> int:
    return words.cpus(job) if _had_nodes(job) else 0


def _memory(job: job_pb2.Job) -> str:
    mib = words.memory_mib(job)
    return size(mib) if mib else "0"


def _tres(job: job_pb2.Job) -> str:
    nodes = words.node_count(job)
    memory = words.memory_mib(job) * nodes
    return tres(nodes, words.cpus(job), memory, job.resources.gpu_count)


def _exit(job: job_pb2.Job) -> str:
    return f"{job.exit_code}:{job.exit_signal}"


def _minutes(job: job_pb2.Job) -> str:
    limit_s = words.limit_s(job)
    return "UNLIMITED" if limit_s is None else str(int(limit_s) // 60)


# Values that nobody measures here read empty, as they do in Slurm for a job without steps.
_EMPTY = SacctField(10, lambda job, _: "")
FIELDS: Mapping[str, SacctField] = {
    "JobID": _plain(12, shown_id),
    "JobIDRaw": _plain(12, lambda job: job.job_id),
    "JobName": _plain(10, lambda job: job.name),
    "Partition": _plain(10, lambda job: job.queue),
    "Cluster": SacctField(10, lambda job, cluster: cluster),
    "Account": _EMPTY,
    "QOS": _EMPTY,
    "Comment": _EMPTY,
    "User": _plain(9, lambda job: job.user),
    "UID": _plain(6, lambda job: str(words.uid(job.user))),
    "AllocCPUS": _plain(10, lambda job: str(_cpus(job))),
    "NCPUS": _plain(10, lambda job: str(_cpus(job) or words.cpus(job))),
    "ReqCPUS": _plain(8, lambda job: str(words.cpus(job))),
    "AllocNodes": _plain(10, lambda job: str(words.node_count(job) if _had_nodes(job) else 0)),
    "NNodes": _plain(8, lambda job: str(words.node_count(job))),
    "ReqNodes": _plain(8, lambda job: str(words.node_count(job))),
    "ReqMem": _plain(10, _memory),
    "AllocTRES": _plain(10, lambda job: _tres(job) if _had_nodes(job) else ""),
    "ReqTRES": _plain(10, _tres),
    "NodeList": _plain(15, lambda job: words.nodes(job) or "None assigned"),
    "State": _plain(10, account_state),
    "ExitCode": _plain(8, _exit),
    "DerivedExitCode": _plain(15, _exit),
    "Submit": _plain(19, lambda job: words.instant(job.submit_time, _UNKNOWN)),
    "Eligible": _plain(19, lambda job: words.instant(job.queue_time, _UNKNOWN)),
    "Start": _plain(19, lambda job: words.instant(job.start_time, _UNKNOWN)),
    "End": _plain(19, lambda job: words.instant(job.end_time, _UNKNOWN)),
    "Elapsed": _plain(10, lambda job: clock(_elapsed_s(job))),
    "ElapsedRaw": _plain(10, lambda job: str(_elapsed_s(job))),
    "CPUTime": _plain(10, lambda job: clock(_elapsed_s(job) * _cpus(job))),
    "CPUTimeRAW": _plain(10, lambda job: str(_elapsed_s(job) * _cpus(job))),
    "Timelimit": _plain(10, lambda job: clock(words.limit_s(job))),
    "TimelimitRaw": _plain(10, _minutes),
    "Restarts": _plain(8, lambda job: str(max(0, job.attempt_count - 1))),
    "Reason": _plain(22, words.reason),
    **dict.fromkeys(("MaxRSS", "AveRSS", "MaxVMSize", "TotalCPU", "NTasks"), _EMPTY),
}
_BY_WORD = {name.lower(): name for name in FIELDS}


def column(word: str) -> tuple[str, int]:
    """`JobName%20` in any case; a negative width is one from the left. InvalidRequest for no
    field.
    """
    name, percent, width = word.partition("%")
    known = _BY_WORD.get(name.lower())
    if known is None:
        raise InvalidRequest(
            f"sacct: Invalid field requested: {name[:40]!r}", hint="fields: " + ",".join(FIELDS)
        )
    return known, int(width) if percent and width.lstrip("-").isdigit() else FIELDS[known].width


def fill(text: str, width: int) -> str:
    """Padded, or cut with Slurm's `+`."""
    most = abs(width)
    if len(text) > most:
        text = f"{text[: most - 1]}+" if most else ""
    return text.ljust(most) if width < 0 else text.rjust(most)


def since(text: str, option: str, now_s: float) -> float:
    """An instant of `-S` or `-E`: a date, a time of day that has been, now-2days.
    InvalidRequest.
    """
    head, minus, span = text.strip().lower().partition("now-")
    try:
        if minus and not head:
            return now_s - _span_s(span)
        if head in {"today", "midnight"}:
            head = "00:00"
        at_s = parse_instant(head, now_s=now_s, zone=LocalZone())
        is_time_of_day = head == "noon" or ("-" not in head and ":" in head)
        return at_s - DAY if is_time_of_day and at_s > now_s else at_s
    except ValueError:
        raise InvalidRequest(
            f"sacct: Invalid time specification: --{option}={text[:40]}",
            hint="write 2026-12-01, 2026-12-01T08:00, 08:00, now-2days",
        ) from None


def _span_s(span: str) -> float:
    return parse_instant(f"now+{span}", now_s=0.0, zone=LocalZone())


def midnight_s(now_s: float) -> float:
    """The beginning of today here: sacct's default."""
    today = datetime.fromtimestamp(now_s, LocalZone())
    return today.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
