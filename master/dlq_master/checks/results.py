"""A check has ended: its result is written down, and its node is quarantined, or opened again.

The result is the last line that each rank has printed. A check that did not end by itself in its
time has failed too: it hangs. One that was stopped, that could not start, or whose node was lost,
tells nothing. An all-reduce blames neither of its two nodes. A node that fails it with two
different partners is quarantined.

Some kinds measure a thing that nodes share, such as a file system. A failure counts against a node
only if the last check of this kind has passed on another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dlq_common.text.names import printable
from dlq_master.checks import suspects
from dlq_master.checks.due import PAIR
from dlq_master.control.attempts import quarantine
from dlq_master.control.loop.turn import Steps, Turn
from dlq_master.model.attempts.attempt import Attempt, RankStatus
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.nodes.node import FlagNote, LastCheck, Node, NodeFlag

SHARED = frozenset({"checkpoints", "clock", "pull"})
_LONGEST = 80  # characters of a text in a result
_CODES = {True: 0, False: 1}  # with which a check ends
_ENOUGH = 2  # partners with which an all-reduce failed


class NodeVerdict(NamedTuple):
    """The word on one node; `passed` None: it tells nothing. `facts`: for the journal."""

    passed: bool | None
    words: str
    facts: dict[str, Any]


def take(turn: Turn, steps: Steps) -> None:
    """Judge the checks that have ended in these steps."""
    living = turn.state.nodes.checks.living
    for one in steps.happened:
        if one.job_id in living and (job := turn.job(one.job_id)).ended and not job.live_attempt:
            living.discard(one.job_id)
            turn.state.nodes.checks.first.discard(one.job_id)
            _judge(turn, job)


def verdict(job: Job, status: RankStatus | None) -> NodeVerdict:
    """The word of an ended check on the node of this rank; None: it never had one."""
    told = _line(status)
    passed = told.get("passed") if told.get("check") == job.check else None
    facts, code = _facts(told), None if status is None else status.exit_code
    if isinstance(passed, bool) and code == _CODES[passed]:
        return NodeVerdict(passed, _words(told, facts), facts)
    if job.state is JobState.TIMED_OUT and status is not None and not status.lost:
        return _failed(f"no result within {job.time_limit_s:g} s: it hangs")
    why = _text(told.get("why")) or (job.end_reason.value if job.end_reason else job.state.value)
    return NodeVerdict(None, f"nothing was learned: {why}", facts)


def closed_for(note: FlagNote | None, kinds: frozenset[str]) -> frozenset[str]:
    """The checks that a node must pass which the master has quarantined: the one that it failed.
    Where jobs failed, it is each kind that is made of single nodes. None: people closed it.
    """
    if note is None or note.by != quarantine.BY:
        return frozenset()
    if note.reason.startswith("check "):
        return frozenset({note.reason.split()[1].rstrip(":")})
    return kinds - {PAIR}


# --- helpers, in order of use ---------------------------------------------------------------------


def _judge(turn: Turn, job: Job) -> None:
    attempt = _attempt(turn, job)
    ranks = () if attempt is None else attempt.ranks
    verdicts = [verdict(job, status) for status in ranks]
    if job.check == PAIR:
        verdicts = [_of_both(verdicts)] * len(ranks)
    for status, found in zip(ranks, verdicts, strict=True):
        _note(turn, job, status.node_id, found)
    for status, found in zip(ranks, verdicts, strict=True):
        node = turn.state.cluster.nodes.get(status.node_id)
        if node is not None and found.passed:
            _passed(turn, job, node, found)
        elif node is not None and found.passed is False:
            _fail(turn, job, node, {one.node_id for one in ranks}, found)


def _attempt(turn: Turn, job: Job) -> Attempt | None:
    if not job.attempts:
        return None
    return turn.state.cluster.touched_attempt(AttemptKey(job.job_id, job.attempts))


def _line(status: RankStatus | None) -> Mapping[str, Any]:
    """The result that a rank has printed last; empty: none that can be read."""
    if status is None or not status.last_lines:
        return {}
    try:
        told = json.loads(status.last_lines[-1])
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _facts(told: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {
        name: float(value)
        for name in ("figure", "limit")
        if isinstance(value := told.get(name), int | float) and not isinstance(value, bool)
    }
    return {**numbers, "unit": _text(told.get("unit")), "on": _text(told.get("on"))}


def _text(value: object) -> str:
    return printable(value[:_LONGEST]) if isinstance(value, str) else ""


def _words(told: Mapping[str, Any], facts: dict[str, Any]) -> str:
    why = _text(told.get("why"))
    if "figure" not in facts:
        return why or "no figure"
    words = f"{facts['figure']:g} {facts['unit']}"
    words += f", limit {facts['limit']:g} {facts['unit']}" if facts.get("limit") else ""
    return f"{words}; {why}" if why else words


def _failed(words: str) -> NodeVerdict:
    return NodeVerdict(False, words, {})


def _note(turn: Turn, job: Job, node_id: NodeId, found: NodeVerdict) -> None:
    """Write the result down, for `dlq admin check history`."""
    passed = {True: "passed", False: "failed", None: "unknown"}[found.passed]
    turn.note(
        "node_checked",
        job_id=job.job_id,
        node_id=node_id,
        cause=f"check {job.check} {passed}: {found.words}",
        check=job.check,
        result=passed,
        **found.facts,
    )
    last = turn.state.nodes.checks.last.setdefault(node_id, {})
    last[job.check] = LastCheck(turn.now_s, found.passed)


def _passed(turn: Turn, job: Job, node: Node, found: NodeVerdict) -> None:
    """The node is opened again if this was the last check that it had to pass."""
    checks = turn.state.nodes.checks
    if job.check == PAIR:
        checks.partners.pop(node.node_id, None)
    suspects.passed(turn, node)
    note = node.note(NodeFlag.QUARANTINED)
    needed = closed_for(note, frozenset(turn.state.config.checks.kinds))
    if note is None or job.check not in needed:
        return
    last = checks.last.get(node.node_id, {})
    told = [last.get(kind) for kind in needed]
    if all(one is not None and one.passed and one.time_s >= note.since_s for one in told):
        quarantine.reopen(turn, node.node_id, f"check {job.check} passed: {found.words}")


def _of_both(verdicts: Sequence[NodeVerdict]) -> NodeVerdict:
    """The word on a pair: the first that ends badly takes the other one's words away."""
    failed = [one for one in verdicts if one.passed is False]
    unknown = [one for one in verdicts if one.passed is None]
    return (*failed, *unknown, *verdicts)[0]


def _fail(turn: Turn, job: Job, node: Node, nodes: set[NodeId], found: NodeVerdict) -> None:
    if job.check in SHARED and not _passes_elsewhere(turn, job.check, node.node_id):
        return
    if job.check != PAIR or _blamed(turn, node.node_id, nodes):
        reason = f"check {job.check}: {found.words} (job {job.job_id})"
        quarantine.close(turn, node.node_id, reason)


def _passes_elsewhere(turn: Turn, kind: str, node_id: NodeId) -> bool:
    others = turn.state.nodes.checks.last.items()
    told = [last[kind] for other, last in others if other != node_id and kind in last]
    return any(one.passed for one in told)


def _blamed(turn: Turn, node_id: NodeId, pair: set[NodeId]) -> bool:
    """Whether a node has failed all-reduces with enough different partners by now."""
    partners = turn.state.nodes.checks.partners.setdefault(node_id, set())
    partners |= pair - {node_id}
    return len(partners) >= _ENOUGH
