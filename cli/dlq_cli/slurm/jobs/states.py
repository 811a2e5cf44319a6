"""The states that `-t` of Slurm's programs takes."""

from __future__ import annotations

from dlq_cli.lists.slurm_states import WORDS
from dlq_cli.slurm.said import SlurmSays

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


def _refusal(program: str, word: str) -> tuple[str, ...]:
    if program == "sacct":
        return (f"sacct: fatal: unrecognized job state value '{word}'",)
    return (
        f"{program}: error: Invalid job state specified: {word}",
        f"{program}: error: Valid job states include: {_IN_SLURMS_ORDER}",
    )
