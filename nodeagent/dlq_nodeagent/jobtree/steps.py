"""A job's list of its steps: a text file in its directory, written by the program of rank 0.

The first line is `dlq-steps`, 1, and the numbers of dropped and of dropped failed steps. Once the
batch script has ended, its memory and CPU time follow. Each other line is a step, with fields
divided by tabs. The file is the job's. A malformed file is refused as a whole, because its writer
always replaces it as a whole.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from dlq_nodeagent.model.steps import StepList, WrittenStep

MOST_STEPS_BYTES = 2 << 20
MOST_STEPS = 1_000
MOST_TOLD_BYTES = 512 << 10
"""A report to the master is no longer than this; the oldest ended steps beyond it are dropped."""
_HEAD = ("dlq-steps", "1")
_FIELDS = 11
_MOST_NAME = 256
_MOST_NODES_TEXT = 1023
_MOST_NODE_NAME = 253
_STEP_BYTES = 100  # of a step on the wire, but for its texts
_NUMBER = re.compile(r"[0-9]{1,16}\Z", re.ASCII)
_PRINTABLE = re.compile(r"[ -~]*\Z", re.ASCII)
_MOST_COUNT = 2**31 - 1
_MOST_MS = 2**53
_STATES = {"running": True, "ended": False}


class StepsRefused(ValueError):
    """The file is not a list of steps; the text says where."""


def parse_steps(content: bytes) -> StepList:
    """The steps in these bytes. StepsRefused: it is not a complete list, however hostile."""
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        raise StepsRefused("not plain text") from None
    head, *lines = text.split("\n")
    if not lines or lines.pop():
        raise StepsRefused("the last line is not whole")
    if len(lines) > MOST_STEPS:
        raise StepsRefused(f"more than {MOST_STEPS} steps")
    frame = _head(head.split("\t"))
    steps = tuple(_at(number, line) for number, line in enumerate(lines, 2))
    if any(one.number >= other.number for one, other in pairwise(steps)):
        raise StepsRefused("numbers of steps do not rise")
    return _fitting(replace(frame, steps=steps))


def _head(fields: Sequence[str]) -> StepList:
    if len(fields) not in (4, 6) or tuple(fields[:2]) != _HEAD:
        raise StepsRefused("line 1: not the head of a list of steps")
    dropped, failed = _whole(fields[2], _MOST_COUNT), _whole(fields[3], _MOST_COUNT)
    if failed > dropped:
        raise StepsRefused("line 1: more failed steps than steps")
    if len(fields) == 4:
        return StepList(dropped_count=dropped, dropped_failed_count=failed)
    return StepList(
        dropped_count=dropped,
        dropped_failed_count=failed,
        script_peak_memory_bytes=_whole(fields[4], _MOST_MS),
        script_cpu_s=_whole(fields[5], _MOST_MS) / 1e6,
    )


def _at(number: int, line: str) -> WrittenStep:
    try:
        return _step(line)
    except StepsRefused as error:
        raise StepsRefused(f"line {number}: {error}") from None


def _step(line: str) -> WrittenStep:
    fields = line.split("\t")
    if len(fields) != _FIELDS:
        raise StepsRefused(f"{len(fields)} fields")
    number, name, nodes, tasks, state, code, start, end, rss, cpu, nodelist = fields
    running = _STATES.get(state)
    if running is None:
        raise StepsRefused("neither running nor ended")
    start_ms, end_ms = _whole(start, _MOST_MS), _whole(end, _MOST_MS)
    if running and end_ms:
        raise StepsRefused("an end of a step that runs")
    return WrittenStep(
        number=_whole(number, _MOST_COUNT),
        name=_text(name, _MOST_NAME),
        node_count=_whole(nodes, _MOST_COUNT),
        task_count=_whole(tasks, _MOST_COUNT),
        running=running,
        exit_code=_whole(code, 255),
        start_s=start_ms / 1e3,
        end_s=end_ms / 1e3,
        peak_memory_bytes=_whole(rss, _MOST_MS),
        cpu_s=_whole(cpu, _MOST_MS) / 1e6,
        node_ids=_node_ids(_text(nodelist, _MOST_NODES_TEXT)),
    )


def _whole(text: str, most: int) -> int:
    value = int(text) if _NUMBER.match(text) else most + 1
    if value > most:
        raise StepsRefused(f"not a number from 0 to {most}: {text[:20]!r}")
    return value


def _text(text: str, most: int) -> str:
    if len(text) > most or not _PRINTABLE.match(text):
        raise StepsRefused("a text that is too long, or not printable")
    return text


def _node_ids(text: str) -> tuple[str, ...]:
    """The names. The last one of a full list may be cut off, and is left out."""
    names = text.split(",") if text else []
    if len(text) == _MOST_NODES_TEXT:
        names.pop()
    if not all(0 < len(name) <= _MOST_NODE_NAME for name in names):
        raise StepsRefused("a node without a name")
    return tuple(names)


def _fitting(listed: StepList) -> StepList:
    """As much of the list as a report may hold: running steps, and the newest others."""
    left = MOST_TOLD_BYTES
    kept: list[WrittenStep] = []
    dropped: list[WrittenStep] = []
    for step in sorted(listed.steps, key=lambda one: (one.running, one.number), reverse=True):
        left -= _STEP_BYTES + len(step.name) + sum(len(name) + 2 for name in step.node_ids)
        (kept if left >= 0 else dropped).append(step)
    return replace(
        listed,
        steps=tuple(sorted(kept, key=lambda one: one.number)),
        dropped_count=listed.dropped_count + len(dropped),
        dropped_failed_count=listed.dropped_failed_count
        + sum(bool(step.exit_code) for step in dropped),
    )
