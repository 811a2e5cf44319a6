"""The journal's words: the name of each event, and its details."""

import re
from collections.abc import Sequence
from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Any

from dlq_common.text.instants import format_instant
from dlq_master.control.loop.turn import Steps, Turn
from dlq_master.model.attempts.attempt_steps import Renewed
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.estimates.estimate import Basis
from dlq_master.model.event import Fact
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import STORED_NAMES, Checkpoint, KeptGpus, Resizing, Taken
from dlq_master.model.jobs.job_steps import Ran, Requeued, Reserved, Resized, ResizedLive, Usage
from dlq_master.model.nodes.node_steps import Doubted, DoubtOver
from dlq_master.model.plan import Provision, Release, Reserve, Start
from dlq_master.model.resources import Allocation
from dlq_master.model.why import ReasonCode
from dlq_master.model.words.promise_words import no_promise
from dlq_master.model.words.sentence import PLAIN, preempted


def note_steps(turn: Turn, steps: Steps) -> None:
    """Write a line of the journal for each step of a state machine."""
    for one in steps.happened:
        if isinstance(one.event, TOLD_OTHERWISE):
            continue  # no edge of a machine of states, or told with more words
        kind, facts = line(one)
        _note(turn, one, steps.actor, kind, steps.cause or cause(one), facts)
        if (told := resized(one)) is not None:
            why, sizes = told
            _note(turn, one, steps.actor, "job_resized", why, sizes)


TOLD_OTHERWISE = (Renewed, Provision, Release, Doubted, DoubtOver)


def _note(
    turn: Turn, one: Happened, actor: str, kind: str, why: str, facts: dict[str, Fact]
) -> None:
    turn.note(
        kind,
        job_id=one.job_id,
        key=_key(one),
        node_id=one.node_id,
        actor=actor,
        cause=why,
        **facts,
    )


def _key(one: Happened) -> AttemptKey | None:
    if one.job_id is None or one.attempt is None:
        return None
    return AttemptKey(one.job_id, one.attempt)


def line(one: Happened) -> tuple[str, dict[str, Fact]]:
    """The event's fixed word, such as "attempt_stop_requested", and its facts."""
    if isinstance(one.change, Start):
        allocation = one.change.allocation
        return "attempt_assigned", {
            "cores" if allocation.slots[0].core_indices else "gpus": allocation.width,
            "nodes": where(allocation),
        }
    word = _PROMISES.get(one.change.reason.code) if isinstance(one.change, Reserve) else None
    if word is not None and isinstance(one.event, Reserved):
        return word, _promise(one.event)
    subject = "node" if one.node_id is not None else "job" if one.attempt is None else "attempt"
    return event_word(subject, type(one.event)), _facts(one.event)


def event_word(subject: str, step: type) -> str:
    """The kind of event that a step of a state machine becomes: `job`, `Held` -> "job_held"."""
    return _word(subject, step.__name__)


@cache
def _word(subject: str, step: str) -> str:
    return f"{subject}_{_snake(step)}"


def cause(one: Happened) -> str:
    """Why, in words: the plan's reason, if a plan did it."""
    if isinstance(one.event, Requeued) and one.event.taken is not None:
        return preempted(one.event.taken)
    if one.change is None:
        words = (getattr(one.event, name, "") for name in ("cause", "detail"))
        return ": ".join(str(word) for word in words if word)
    reason = one.change.reason
    if reason.code in (ReasonCode.OUTRANKED, ReasonCode.MAKES_WAY, ReasonCode.KEPT_GPUS):
        return f"{reason.code.value}: {reason.detail}" if reason.detail else reason.code.value
    instead = one.event.alternative if isinstance(one.event, Reserved) else None
    if reason.code is ReasonCode.UNGUARANTEED:
        return no_promise(reason.detail, instead)
    if reason.code in (ReasonCode.PROMISE_BROKEN, ReasonCode.OVERRUN):
        told = "" if instead is None else instead.detail
        return f"{PLAIN[reason.code]} ({told})" if told else PLAIN[reason.code]
    return reason.detail or reason.code.value


def resized(one: Happened) -> tuple[str, dict[str, Fact]] | None:
    """Why a job goes on with another number of GPUs, and the facts of it; None: it does not."""
    if not isinstance(one.event, Ran | ResizedLive) or one.event.resized is None:
        return None
    from_gpus, to_gpus, cost_s, why, mode = one.event.resized
    return why, {"from": from_gpus, "to": to_gpus, "cost_s": cost_s, "mode": mode}


def where(allocation: Allocation) -> str:
    """`gpu01:0+1,gpu02:0` - nodes and their GPUs, or cores, in rank order."""
    return ",".join(
        f"{slot.node_id}:{'+'.join(map(str, slot.gpu_indices or slot.core_indices))}"
        for slot in allocation.slots
    )


_OF_CORES = ("cores", "core_memory_bytes", "suspend_bytes")


def _facts(event: object) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    kind: Any = type(event)
    for field, name in _names(kind):
        value = getattr(event, field)
        if value or field not in _OF_CORES:  # a node that gives none to jobs without GPUs
            facts.update(_told(name, value))
    return facts


@cache
def _names(kind: Any) -> Sequence[tuple[str, str]]:
    """The fields of such an event, and their names in the journal. The line has columns of its own
    for some.
    """
    names = [field.name for field in fields(kind)]  # every event of a machine is a dataclass
    own = ("cause", "detail", "actor", "by")
    return [(name, STORED_NAMES.get(name, name)) for name in names if name not in own]


def _told(name: str, value: Any) -> dict[str, Fact]:
    if isinstance(value, Usage):
        return {
            "executed_s": round(value.executed_s, 3),
            "lost_gpu_s": round(value.lost_gpu_s, 3),
        }
    if isinstance(value, Basis):
        return _basis(value)
    if isinstance(value, Resized | Resizing):
        return {}  # an event of its own tells it
    if isinstance(value, KeptGpus):
        return {"had": where(value.allocation), "kept_until_s": round(value.until_s, 3)}
    if isinstance(value, Taken):
        return {"for_job": value.by, "user": value.user, "rule": value.rule, "lost_s": value.lost_s}
    if isinstance(value, Checkpoint):
        return {"path": value.path, "step": value.step}
    if isinstance(value, StrEnum):
        return {name: value.value}
    if isinstance(value, str | int | float | bool) and value != "":
        return {name: value}
    return {}


def _basis(basis: Basis) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    if basis.source is not None:
        facts["source"] = basis.source.value
    if basis.confidence is not None:
        facts["confidence"] = basis.confidence.value
    if basis.step_s is not None:
        facts["step_s"] = round(basis.step_s, 6)
    if basis.unmeasured is not None:
        facts["unmeasured"] = basis.unmeasured.value
    return facts


# A plan's change of a promise -> the word under which people find it.
_PROMISES = {
    ReasonCode.GUARANTEED: "promise_made",
    ReasonCode.UNGUARANTEED: "promise_refused",
    ReasonCode.REPLANNED: "promise_replanned",
    ReasonCode.PROMISE_BROKEN: "promise_broken",
    ReasonCode.OVERRUN: "promise_overrun",
}


def _promise(event: Reserved) -> dict[str, Fact]:
    facts: dict[str, Fact] = {"ground": event.verdict}
    if event.promised is not None:
        facts["deadline"] = event.promised + 1
    instead = event.alternative
    if instead is not None and instead.earliest_s is not None:
        facts["earliest"] = format_instant(instead.earliest_s)
    if instead is not None and instead.fix:
        facts["fix"] = instead.fix
    return facts


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
