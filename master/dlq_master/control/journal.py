"""The journal's words: what each thing that happens is called, and what is told of it."""

import re
from dataclasses import fields
from enum import StrEnum
from typing import Any

from dlq_master.model.drive import Happened
from dlq_master.model.event import Fact
from dlq_master.model.job import Checkpoint
from dlq_master.model.job_steps import Usage
from dlq_master.model.plan import Start
from dlq_master.model.resources import Allocation


def line(one: Happened) -> tuple[str, dict[str, Fact]]:
    """The event's fixed word, such as "attempt_stop_requested", and its facts."""
    if isinstance(one.change, Start):
        return "attempt_assigned", {
            "gpus": one.change.allocation.width,
            "nodes": where(one.change.allocation),
        }
    subject = "node" if one.node_id is not None else "job" if one.attempt is None else "attempt"
    return f"{subject}_{_snake(type(one.event).__name__)}", _facts(one.event)


def cause(one: Happened) -> str:
    """Why, in words: the plan's reason, if a plan did it."""
    if one.change is None:
        words = (getattr(one.event, name, "") for name in ("cause", "detail"))
        return ": ".join(str(word) for word in words if word)
    reason = one.change.reason
    return reason.detail or reason.code.value


def where(allocation: Allocation) -> str:
    """`gpu01:0-3,gpu02:0` - nodes and their GPUs, in rank order."""
    return ",".join(
        f"{slot.node_id}:{'+'.join(map(str, slot.gpu_indices))}" for slot in allocation.slots
    )


def _facts(event: object) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for field in fields(event):  # type: ignore[arg-type] # every event of a machine is a dataclass
        if field.name in ("cause", "detail", "actor", "by"):
            continue  # the line says those in its own columns
        facts.update(_told(field.name, getattr(event, field.name)))
    return facts


def _told(name: str, value: Any) -> dict[str, Fact]:
    if isinstance(value, Usage):
        return {
            "executed_s": round(value.executed_s, 3),
            "lost_gpu_s": round(value.lost_gpu_s, 3),
        }
    if isinstance(value, Checkpoint):
        return {"path": value.path, "step": value.step}
    if isinstance(value, StrEnum):
        return {name: value.value}
    if isinstance(value, str | int | float | bool) and value != "":
        return {name: value}
    return {}


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
