"""The parameters of lists: filters, words, orders and totals, as the master knows them.

A master of a former release passes over what it does not know. It tells no total either, though
each list asks for it. So a list that it could not filter or order is refused, and not told wrongly.
"""

from __future__ import annotations

from typing import Any, Final

from dlq_common.errors import InvalidRequest
from dlq_web.api.params import PAGE, Param, choice, span, states, text, texts

ORDERS: Final = ("number", "submit", "start", "end", "user", "priority", "gpus")
# Fields of requests that a master of before passes over, and their parameters.
NEW_FIELDS: Final = {
    "team": "team", "gpu_type": "gpu_type", "node_id": "node", "text": "q", "order": "order",
    "states": "state", "flags": "flag",
}  # fmt: skip
_OLD_FIELDS = {"ListJobsRequest": {"states"}}

JOB_LIST: Final[tuple[Param, ...]] = (
    states("state", "states", "States with commas between them, such as running,queued."),
    text("user", "user", "Another user; * is everybody."),
    text("team", "team", "Only jobs whose GPUs are counted to this team."),
    text("queue", "queue", "Only this queue."),
    text("name", "name", "Only this name."),
    text("q", "text", "Words: each is a part of the name or of the user, or the job's number."),
    text("gpu_type", "gpu_type", "Only jobs that ask for this GPU type, or have run on it."),
    text("node", "node_id", "Only jobs that hold something of this node now."),
    span("since", "ended_within_seconds", "How long ago a job may have ended; all."),
    texts("ids", "job_ids", "Only these jobs."),
    choice("order", "order", "With - before it the order falls.",
           [sign + key for key in ORDERS for sign in ("", "-")]),
    *PAGE,
)  # fmt: skip

NODE_LIST: Final[tuple[Param, ...]] = (
    texts("state", "states", "States with commas between them, such as up,suspect."),
    texts("flag", "flags", "Only nodes with one of these flags, such as draining,cordoned."),
    text("gpu_type", "gpu_type", "Only nodes with a GPU of this type."),
    text("q", "text", "Words: each is a part of the name, the host name or a label."),
    *PAGE,
)


def total_of(answer: Any) -> int | None:
    """So many on all pages together; None: a master of before does not say."""
    return int(answer.total_count) if answer.HasField("total_count") else None


def refuse_unknown(request: Any, answer: Any) -> None:
    """InvalidRequest where the master passed over a filter or an order that was asked for."""
    if "with_total" not in request.DESCRIPTOR.fields_by_name or total_of(answer) is not None:
        return
    old = _OLD_FIELDS.get(request.DESCRIPTOR.name, set())
    for field, name in NEW_FIELDS.items():
        if field not in old and getattr(request, field, None):
            raise InvalidRequest(
                f"the master is of a former release, and knows no {name} of lists",
                field=name,
                hint="ask without it, or upgrade the master",
            )
