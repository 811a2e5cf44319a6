"""The states of jobs in Slurm's long words."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.output.said import SlurmSays
from dlq_cli.words import SLURM_CODES, shown_state

_LONG = {
    "PD": "PENDING", "CF": "CONFIGURING", "R": "RUNNING", "S": "SUSPENDED",
    "CG": "COMPLETING", "NF": "NODE_FAIL",
    "CD": "COMPLETED", "F": "FAILED", "CA": "CANCELLED", "TO": "TIMEOUT", "OOM": "OUT_OF_MEMORY",
}  # fmt: skip
_BY_REASON = {"oom_host": "OOM", "oom_gpu": "OOM", "node_lost": "NF"}
FAILURES = frozenset(_BY_REASON.values())
"""The codes of failures of their own kinds."""


def code(job: job_pb2.Job) -> str:
    """`PD`, `R`, ... as squeue shows them; a failure names its kind. Of a silent node a job runs
    on, or completes where it was told to leave.
    """
    state = shown_state(job)
    if state == "unknown":
        return "CG" if job.stop_cause else "R"
    if state == "failed":
        return _BY_REASON.get(job.end_reason, "F")
    return SLURM_CODES[state]


def queue_state(job: job_pb2.Job) -> str:
    """`PENDING`, `CONFIGURING`, ... as squeue's %T."""
    return _LONG[code(job)]


def account_state(job: job_pb2.Job) -> str:
    """The state as in sacct: a starting or leaving job runs, as it may end in any way."""
    return "RUNNING" if job.HasField("attempt_state") else queue_state(job)


# Slurm's further states: known words that match no job here.
_OTHERS = {
    "PR": "PREEMPTED", "BF": "BOOT_FAIL", "DL": "DEADLINE",
    "RS": "RESIZING", "RD": "RESV_DEL_HOLD", "RQ": "REQUEUED", "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD", "RV": "REVOKED", "SI": "SIGNALING", "SE": "SPECIAL_EXIT",
    "SO": "STAGE_OUT", "ST": "STOPPED",
}  # fmt: skip
WORDS = {**_LONG, **_OTHERS}


_IN_SLURMS_ORDER = (
    "PENDING,RUNNING,SUSPENDED,COMPLETED,CANCELLED,FAILED,TIMEOUT,NODE_FAIL,PREEMPTED,BOOT_FAIL,"
    "DEADLINE,OUT_OF_MEMORY,COMPLETING,CONFIGURING,RESIZING,RESV_DEL_HOLD,REQUEUED,REQUEUE_FED,"
    "REQUEUE_HOLD,REVOKED,SIGNALING,SPECIAL_EXIT,STAGE_OUT,STOPPED"
)


def wanted(program: str, words: list[str]) -> frozenset[str]:
    """Long words of `R,PENDING`; empty for all. SlurmSays for a word that is no state."""
    found = set()
    for word in words:
        upper = word.upper()
        long = WORDS.get(upper, upper)
        if long not in WORDS.values() and long != "ALL":
            raise SlurmSays(*_refusal(program, word[:40]))
        found.add(long)
    return frozenset() if "ALL" in found else frozenset(found)


def words_of(states: frozenset[str]) -> list[str]:
    """dlq's words of jobs that may be in one of these states; none: any, or no word is."""
    failed = not states.isdisjoint({"FAILED", *(_LONG[code] for code in FAILURES)})
    silent = not states.isdisjoint({"RUNNING", "COMPLETING"})
    also = {"failed": failed, "unknown": silent}
    return [word for word, code in SLURM_CODES.items() if also.get(word) or _LONG[code] in states]


def _refusal(program: str, word: str) -> tuple[str, ...]:
    if program == "sacct":
        return (f"sacct: fatal: unrecognized job state value '{word}'",)
    return (
        f"{program}: error: Invalid job state specified: {word}",
        f"{program}: error: Valid job states include: {_IN_SLURMS_ORDER}",
        "",
    )
