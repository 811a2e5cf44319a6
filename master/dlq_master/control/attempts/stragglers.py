"""Nodes that slow their gangs down (`[straggler]`): seen by work times of steps, and told.

Agents report the work times of ranks twice a minute, beside a heartbeat (policy/stragglers.py).
Each gang of several nodes is judged by itself, and each node by all of its gangs. A suspicion
closes no node: jobs tell these times, and a check decides (checks/suspects.py). Until then gangs
rather get other nodes (`Node.doubt`).

Nothing is stored but the events and the suspicion, which stands in the node. A master that starts
judges anew, after as many steps as the rule asks for. An agent that starts again leaves out the
steps since its last report. While a line is silent nothing of its node changes. Older figures count
less, and after a day not at all; nor does a suspicion then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli.nodes import ToldUse
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.recording import family_of
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.policy.stragglers import (
    FRESH_S,
    RankPart,
    SeenExcess,
    StragglerRule,
    StragglerScore,
    WorkTimes,
    excesses,
    score,
)

JUDGE_S = 10.0  # a gang is judged no more often
SWEEP_S = 600.0
_MOST_PARTS = 8  # that are kept of a node


@dataclass(slots=True)
class Gang:
    """The work times of an attempt, by rank, each with its node; `judged_s`: the last time."""

    times: dict[int, tuple[NodeId, WorkTimes]] = field(default_factory=dict)
    judged_s: float = float("-inf")
    slow: str = ""  # words on ranks of suspected nodes
    counts: dict[int, float] = field(default_factory=dict)  # steps of the last report of each rank

    @property
    def alike(self) -> bool:
        """Whether all ranks have told about as many steps. In traffic, a rank that has told more
        has counted something else.
        """
        return max(self.counts.values()) <= 1.5 * min(self.counts.values())


@dataclass(slots=True)
class Stragglers:
    """`seen`: the parts that each node has had lately; `places`: the nodes of each part."""

    rule: StragglerRule | None = None
    gangs: dict[tuple[AttemptKey, bool], Gang] = field(default_factory=dict)  # by traffic, or beats
    seen: dict[NodeId, dict[RankPart, SeenExcess]] = field(default_factory=dict)
    places: dict[RankPart, dict[NodeId, None]] = field(default_factory=dict)
    scores: dict[NodeId, StragglerScore] = field(default_factory=dict)
    sweep_s: float = 0.0

    def words(self, key: AttemptKey) -> str:
        """On the ranks of an attempt that slow it down; empty: none does."""
        told = (self.gangs.get((key, traffic)) for traffic in (False, True))
        return next((gang.slow for gang in told if gang is not None and gang.slow), "")


def take(turn: Turn, node_id: NodeId, attempt: Attempt, use: ToldUse) -> None:
    """The work times of a running rank of this attempt, as its node tells."""
    stragglers = turn.state.attempts.stragglers
    if stragglers.rule is None or use.work is None or len(attempt.ranks) < 2:
        return
    gang = stragglers.gangs.setdefault((attempt.key, use.traffic), Gang())
    known = gang.times.get(use.node_rank)
    before = known[1] if known is not None and known[0] == node_id else WorkTimes()
    gang.times[use.node_rank] = node_id, before.plus(use.work)
    gang.counts[use.node_rank] = use.work.steps
    if use.traffic and not gang.alike:
        return
    if turn.now_s - gang.judged_s >= JUDGE_S and _is_ready(stragglers.rule, attempt, gang):
        gang.judged_s = turn.now_s
        _judge(turn, attempt, gang)


def forget_ended(turn: Turn) -> None:
    """Now and then: drop gangs that do not run any more, and parts of which a day has passed."""
    stragglers, living = turn.state.attempts.stragglers, turn.state.cluster.attempts
    for name in [name for name in stragglers.gangs if name[0] not in living]:
        del stragglers.gangs[name]
    if turn.now_s >= stragglers.sweep_s:
        stragglers.sweep_s = turn.now_s + SWEEP_S
        for node_id in list(stragglers.seen):
            if node_id in turn.state.cluster.nodes:
                _score(turn, node_id)
            else:
                _drop(stragglers, node_id)
        for node in [one for one in turn.state.cluster.nodes.values() if one.doubt]:
            old = node.doubt is not None and turn.now_s - node.doubt.since_s > FRESH_S
            if stragglers.rule is None or (old and node.node_id not in stragglers.seen):
                _trust(turn, node.node_id, "no gang has told anything of it for a day")


OPENED = "it was opened again, so it is judged anew"


def begin_anew(turn: Turn, node_id: NodeId, cause: str = OPENED) -> None:
    """People, or a check, have looked at the node. The earlier figures are past."""
    stragglers = turn.state.attempts.stragglers
    _drop(stragglers, node_id)
    if turn.state.cluster.nodes[node_id].doubt is not None:
        _trust(turn, node_id, cause)
    for gang in stragglers.gangs.values():
        gang.times = {rank: told for rank, told in gang.times.items() if told[0] != node_id}


# --- helpers, in order of use ---------------------------------------------------------------------


def _is_ready(rule: StragglerRule, attempt: Attempt, gang: Gang) -> bool:
    """Whether each rank has told enough steps, on the node on which it is now."""
    return all(
        (told := gang.times.get(rank)) is not None
        and told[0] == status.node_id
        and told[1].steps >= rule.steps
        for rank, status in enumerate(attempt.ranks)
        if not status.gone
    )


def _judge(turn: Turn, attempt: Attempt, gang: Gang) -> None:
    stragglers, nodes = turn.state.attempts.stragglers, turn.state.cluster.nodes
    job = turn.state.cluster.jobs[attempt.key.job_id]
    kinds: dict[int, object] = {}
    for rank, status in enumerate(attempt.ranks):
        slot = None if status.gone else attempt.slot_of(rank)
        node = nodes.get(status.node_id)
        if slot is not None and node is not None:
            held = [gpu.gpu_type for gpu in node.gpus if slot.mask >> gpu.index & 1]
            kinds[rank] = (*held, len(slot.core_indices))
    times = {rank: gang.times[rank][1] for rank in kinds}
    found = excesses(times, kinds)
    for rank, excess in found.items():
        seen = SeenExcess(excess, str(attempt.key.job_id), turn.now_s)
        _put(stragglers, attempt.ranks[rank].node_id, RankPart(family_of(job), rank), seen)
    slow = []
    for rank in found:
        node_id = attempt.ranks[rank].node_id
        _score(turn, node_id, attempt.key)
        if node_id in stragglers.scores and stragglers.scores[node_id].suspected:
            more = f"{100.0 * stragglers.scores[node_id].excess:.0f} %"
            slow.append(f"rank {rank} on {node_id} works {more} longer on a step than its peers")
    gang.slow = "; ".join(slow)


def _put(stragglers: Stragglers, node_id: NodeId, part: RankPart, seen: SeenExcess) -> None:
    kept = stragglers.seen.setdefault(node_id, {})
    kept.pop(part, None)  # the newest one is the last
    kept[part] = seen
    stragglers.places.setdefault(part, {})[node_id] = None
    while len(kept) > _MOST_PARTS:
        _leave(stragglers, node_id, next(iter(kept)))


def _leave(stragglers: Stragglers, node_id: NodeId, part: RankPart) -> None:
    del stragglers.seen[node_id][part]
    places = stragglers.places[part]
    del places[node_id]
    if not places:
        del stragglers.places[part]


def _trust(turn: Turn, node_id: NodeId, cause: str) -> None:
    turn.step_node(node_id, on_node.DoubtOver())
    turn.note("node_straggler_over", node_id=node_id, cause=cause)


def _score(turn: Turn, node_id: NodeId, key: AttemptKey | None = None) -> None:
    """A node over all that was seen of it, and an event when its verdict changes."""
    stragglers = turn.state.attempts.stragglers
    assert stragglers.rule is not None
    was = turn.state.cluster.nodes[node_id].doubted

    def elsewhere(part: RankPart) -> Iterator[SeenExcess]:
        for other in stragglers.places.get(part, ()):
            if other != node_id:
                yield stragglers.seen[other][part]

    mine = stragglers.seen[node_id]
    found = score(stragglers.rule, mine, elsewhere, turn.now_s, suspected=was)
    if found is None:
        _drop(stragglers, node_id)
        if was:
            _trust(turn, node_id, "no gang has told anything of it for a day")
        return
    stragglers.scores[node_id] = found
    if found.suspected != was:
        user = turn.job(key.job_id).user if key is not None else ""
        event = on_node.Doubted(user=user) if found.suspected else on_node.DoubtOver()
        turn.step_node(node_id, event)
        more = f"its ranks work {100.0 * found.excess:.1f} % longer on a step than their peers"
        turn.note(
            "node_straggler" if found.suspected else "node_straggler_over",
            key=key,
            node_id=node_id,
            cause=f"{more}: {found.words}",
            excess_percent=round(100.0 * found.excess, 2),
            confidence=round(found.confidence, 4),
            step_count=found.steps,
            gang_count=found.gangs,
            told_apart=found.told_apart,
        )


def _drop(stragglers: Stragglers, node_id: NodeId) -> None:
    for part in list(stragglers.seen.get(node_id, ())):
        _leave(stragglers, node_id, part)
    stragglers.seen.pop(node_id, None)
    stragglers.scores.pop(node_id, None)
