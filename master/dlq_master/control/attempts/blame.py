"""The parts of an attempt's end that speak against a node: one line for each cause of a failed
start, and for each end.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlq_common.start_causes import CAUSES, LACKED, speaks_against_node
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import EndReason

_BY_GPU = "within `quarantine_fast` of its start, on a GPU of which a fault of hardware is told"
ENDS: Mapping[EndReason, str] = {
    **dict.fromkeys(EndReason, "no"),
    EndReason.START_FAILED: "by its cause, as above",
    EndReason.USER_ERROR: _BY_GPU,
    EndReason.SIGNAL: _BY_GPU,
    EndReason.NODE_LOST: "no: silence is judged by itself, and jobs can kill what guards them",
}


def page() -> str:
    """Both tables, for `docs/reference/states`."""
    lines = [
        "# What speaks against a node",
        "",
        "Why a rank could not be started, and whether that does:",
        "",
    ]
    lines += ["| cause | what it says | against its node |", "|---|---|---|"]
    lines += [
        f"| `{cause.value}` | {it.words} | {_YES_NO[it.of_node]} |" for cause, it in CAUSES.items()
    ]
    lines += [
        "",
        "How an attempt ended, and whether that does:",
        "",
        "| end | against its node |",
        "|---|---|",
    ]
    lines += [f"| `{reason.value}` | {words} |" for reason, words in ENDS.items()]
    return "\n".join(lines) + "\n"


_YES_NO = {True: "**yes**", False: "no"}


def of_start(attempt: Attempt) -> NodeId | None:
    """The node that failed an attempt before it began; None: the cause that kept it from starting
    is no node's fault.
    """
    for status in attempt.ranks:
        if status.start_error and not status.no_room and speaks_against_node(status.start_cause):
            return status.node_id
    return None


def lacking(attempt: Attempt) -> NodeId | None:
    """The node that lacked a file, a mount or an image of an attempt which could not begin; None:
    it began, or its end had another cause.
    """
    return next(
        (it.node_id for it in attempt.ranks if it.start_cause in LACKED and it.failed), None
    )
