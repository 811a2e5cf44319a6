"""Deadlines and promises as text for people."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.output.render import OutputLook, clean_line, moment, sentence
from dlq_common.text.instants import format_instant
from dlq_common.text.units import format_duration
from dlq_common.text.wire import from_duration, from_timestamp

GUARANTEED, AT_RISK = "guaranteed", "at risk"
SAVING_UNKNOWN = (
    "nothing is known of how it saves; a stop loses its work, and may cost it the promise"
)


def promise_pairs(promise: job_pb2.Promise, look: OutputLook) -> tuple[tuple[str, str], ...]:
    """For `dlq show`; `promise` of a job with deadlines."""
    return (
        ("deadline", ", ".join(_deadline(promise, step, look) for step in promise.deadlines)),
        ("promise", sentence(answer(promise), look)),
        ("saving", SAVING_UNKNOWN if promise.saving_unknown else ""),
        ("instead", instead(promise)),
        ("slack", slack(promise)),
        ("on miss", promise.on_miss if promise.on_miss != "continue" else ""),
    )


def answer(promise: job_pb2.Promise) -> str:
    """`guaranteed: ...` or why not, on one line."""
    word = GUARANTEED if promise.state == GUARANTEED else "not guaranteed"
    if promise.risk:
        return f"{word}, {AT_RISK}: {clean_line(promise.risk)}"
    return f"{word}: {clean_line(promise.detail)}"


def standing(promise: job_pb2.Promise) -> str:
    """The same in a word or two, for lists."""
    return AT_RISK if promise.risk else promise.state


def instead(promise: job_pb2.Promise) -> str:
    """The offers at the time of the judgement, with the flags to ask for them; empty: none."""
    words = []
    if promise.HasField("earliest_time"):
        words.append(
            f"the earliest that could be promised: --deadline {_at(promise.earliest_time)}"
        )
    if promise.fix == "fewer_gpus":
        words.append(_narrower(promise))
    elif promise.fix == "wait_for_quota" and promise.HasField("fix_time"):
        words.append(f"its team's promises leave room from {_at(promise.fix_time)} on")
    return "; ".join(words)


def slack(promise: job_pb2.Promise) -> str:
    """Time to spare, or with a minus the delay; empty: unknown."""
    if not promise.HasField("slack_duration"):
        return ""
    seconds = from_duration(promise.slack_duration)
    return ("-" if seconds < 0 else "") + format_duration(abs(seconds))


def target_s(promise: job_pb2.Promise) -> float:
    """The deadline that is promised, or else the last one."""
    index = promise.guaranteed_index if promise.HasField("guaranteed_index") else -1
    return from_timestamp(promise.deadlines[index].due_time)


# --- helpers, in order of use ---------------------------------------------------------------------


def _narrower(promise: job_pb2.Promise) -> str:
    gpus = promise.fix_gpu_count
    if promise.HasField("fix_time"):
        return (
            f"with {gpus} GPUs, if it takes as much longer on them: --deadline "
            f"{_at(promise.fix_time)}"
        )
    return f"with {gpus} GPUs its deadline could be"


def _deadline(promise: job_pb2.Promise, step: job_pb2.DeadlineStep, look: OutputLook) -> str:
    at = moment(from_timestamp(step.due_time), look)
    strict = len(promise.deadlines) == 1 and step.reward == 100.0
    return at if strict else f"{at} (worth {step.reward:g})"


def _at(timestamp: object) -> str:
    """An instant as a flag takes it."""
    return format_instant(from_timestamp(timestamp)).replace(".000Z", "Z")  # type: ignore[arg-type]  # a Timestamp
