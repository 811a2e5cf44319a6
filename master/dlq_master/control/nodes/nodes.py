"""Nodes: sessions, silence, fences and flags.

When an agent restarts, its hello names all ranks that it found, and both sides compare their lists.
When the master restarts, silence counts from its start, and it starts no job before most nodes are
back. A silent node is SUSPECT, then UNREACHABLE with its attempts UNKNOWN. After the hold and a
margin it is DOWN, and its attempts are lost.
"""

import math

from dlq_common.errors import Conflict, IllegalTransition, InvalidRequest, StaleFence
from dlq_master.control.attempts import (
    dispatch,
    idleness,
    quarantine,
    ranks,
    reports,
    stalls,
    stragglers,
    work_loss,
)
from dlq_master.control.deadlines import progress as paces
from dlq_master.control.loop.once import Done, nothing, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.nodes import (
    gpu_health,
    instances,
    maintenance,
    unaccounted,
    unclean,
)
from dlq_master.control.people import revocations
from dlq_master.control.placement import gpu_types
from dlq_master.control.stimuli import (
    AcceptGpus,
    CloseSession,
    CommandDone,
    Fenced,
    FenceNode,
    ForgetNode,
    Heartbeat,
    Opened,
    OpenSession,
    RankReports,
    ReportedProgress,
    SetNodeFlags,
)
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.control.trials import first_steps, resume_times, speeds
from dlq_master.model.attempts import attempt_steps as on_attempt
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import NodeId
from dlq_master.model.lease import requeue_time_s
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import Node, NodeFlag, NodeState
from dlq_master.model.nodes.node import frozen as frozen_now
from dlq_master.store.tables.revocations import NODE

_EPOCH_LEAP = 1_000_000  # each start adds one: a claim beyond this is not believed


def open_session(turn: Turn, ask: OpenSession) -> Opened:
    """Answer the hello of a node: take in its boot id, devices and ranks; name the wanted ranks."""
    state = turn.state
    instances.check(turn, ask)
    if ask.highest_epoch > state.epoch:
        _outrank(turn, ask)
    session_id = state.nodes.next_session
    state.nodes.next_session += 1
    state.nodes.sessions[ask.node_id] = session_id
    state.nodes.contacts.hear(ask.node_id, turn.now_s)
    state.nodes.greeted.add(ask.node_id)
    state.nodes.holds_sent.pop(ask.node_id, None)
    turn.plan_due = True  # a job may wait for its GPUs
    state.nodes.unowned[ask.node_id] = {}
    state.nodes.unreleased[ask.node_id] = {}
    first_steps.hello(turn, ask)
    # Reports of ends come first: a rank that ended before a boot has ended, and is not lost.
    acknowledged = reports.take(turn, ask.node_id, ask.reports)
    unbroken = instances.remembers(turn, ask)
    _register(turn, ask)
    instances.note(turn, ask)
    unaccounted.take(turn, ask, unbroken=unbroken)
    unclean.close_while_unclean(turn, ask.node_id)
    _return_attempts(turn, ask.node_id)
    return Opened(
        session_id=session_id,
        epoch=state.epoch,
        heartbeat_s=state.terms.heartbeat_s,
        ttl_s=state.terms.ttl_s,
        reconnect_jitter_s=state.config.nodes.reconnect_jitter,
        launches=dispatch.launches_for(turn, ask.node_id),
        stops=dispatch.stops_for(turn, ask.node_id),
        acknowledged=acknowledged,
        hold_extension_s=state.cluster.nodes[ask.node_id].maintenance_s,
        hold_revision=state.cluster.nodes[ask.node_id].hold_revision,
    )


def close_session(turn: Turn, ask: CloseSession) -> None:
    """Forget the session of a closed stream; only missing heartbeats make the node silent."""
    if turn.state.nodes.sessions.get(ask.node_id) == ask.session_id:
        del turn.state.nodes.sessions[ask.node_id]


def heartbeat(turn: Turn, ask: Heartbeat) -> None:
    """Take in a heartbeat, and the progress of jobs. Writes nothing while the node is UP."""
    state = turn.state
    if state.nodes.sessions.get(ask.node_id) != ask.session_id:
        return
    for word in ask.progress:
        _take_progress(turn, ask.node_id, word)
    if state.cluster.nodes[ask.node_id].state in (NodeState.SUSPECT, NodeState.UNREACHABLE):
        turn.step_node(ask.node_id, on_node.Heard(), actor=f"node:{ask.node_id}")
        _return_attempts(turn, ask.node_id)
    maintenance.told(turn, ask.node_id, ask.hold_revision)
    if ask.health is not None:
        gpu_health.take(turn, ask.node_id, ask.health)
    if ask.disk is not None:
        unclean.take_disk(turn, ask.node_id, ask.disk)
    if ask.rank_uses:
        idleness.take_uses(turn, ask.node_id, ask.rank_uses)
        stalls.take_sends(turn, ask.rank_uses)


def rank_reports(turn: Turn, ask: RankReports) -> int:
    """Take in reports of the current session; others come again with the next hello."""
    _must_be_current(turn, ask.node_id, ask.session_id)
    doubted = bool(turn.state.nodes.unaccounted.get(ask.node_id))
    acknowledged = reports.take(turn, ask.node_id, ask.reports)
    unclean.close_while_unclean(turn, ask.node_id)
    if doubted and not turn.state.nodes.unaccounted.get(ask.node_id):
        _return_attempts(turn, ask.node_id)
    return acknowledged


def command_done(turn: Turn, ask: CommandDone) -> None:
    """The node has a command on its disk, or has refused it for good."""
    if turn.state.nodes.sessions.get(ask.node_id) != ask.session_id:
        return
    row = turn.state.attempts.outbox.get(ask.sequence)
    if row is None or row.node_id != ask.node_id:
        return
    turn.delivered(ask.sequence)
    if row.kind == "signal" and not ask.refusal:
        turn.note(
            "rank_signalled",
            node_id=ask.node_id,
            key=row.key,
            actor=f"node:{ask.node_id}",
            signal=row.cause or "its own",
            node_rank=row.node_rank,
        )
    if ask.refusal:
        turn.note(
            "command_refused",
            node_id=ask.node_id,
            key=row.key,
            actor=f"node:{ask.node_id}",
            cause=ask.refusal,
            command=row.kind,
        )
        if row.kind == "launch" and ask.refusal == "fence_mismatch":
            # It has a newer attempt of this name: this database was restored from a backup.
            reports.fail_start(turn, row, ask.refusal)


def watch_silence(turn: Turn) -> None:
    """Once a second: step each silent node by the length of its silence. Nodes that are UP, without
    a flag and just heard, cost nothing.
    """
    state = turn.state
    maintenance.end_due(turn)
    gpu_health.watch_cleaning(turn)
    _note_freeze(turn)
    instances.tell_refused(turn)
    silent = state.nodes.contacts.silent(turn.now_s, state.terms.ttl_s)
    doubted = [node_id for node_id, ranks in state.nodes.unaccounted.items() if ranks]
    for node_id in sorted({*silent, *doubted, *state.cluster.capacity.marked}):
        node = state.cluster.nodes.get(node_id)
        if node is not None and node.state is not NodeState.DOWN:
            _watch_silence_of(turn, node)


def _as_it_stands(turn: Turn, ask: SetNodeFlags | AcceptGpus, _word: str) -> Node:
    return turn.node(ask.node_id)


def _fenced_before(turn: Turn, ask: FenceNode, _word: str) -> Fenced:
    return Fenced(turn.node(ask.node_id), ())


@once(_fenced_before)
def fence(turn: Turn, ask: FenceNode) -> Fenced | Done[Fenced]:
    """Lose the attempts of a node now: an operator says that the machine is off."""
    node = turn.node(ask.node_id)
    if node.state is NodeState.DOWN:
        return Fenced(node, ())
    if node.state is NodeState.UP and turn.state.nodes.unaccounted.get(ask.node_id):
        cause = f"fenced: {ask.reason}"
        keys = unaccounted.fence(turn, ask.node_id, actor=ask.caller.actor, cause=cause)
        return Done(Fenced(node, tuple(key.job_id for key in keys)), ask.node_id)
    if node.state is NodeState.UP:
        raise IllegalTransition(
            f"node {ask.node_id} answers: it is not off",
            hint=f"empty it: dlq admin node drain {ask.node_id}; or stop its agent and wait",
            state=node.state.value,
        )
    lost = tuple(key.job_id for key in turn.state.cluster.attempts_on(ask.node_id))
    lose(turn, ask.node_id, actor=ask.caller.actor, cause=f"fenced: {ask.reason}")
    return Done(Fenced(turn.state.cluster.nodes[ask.node_id], lost), ask.node_id)


@once(_as_it_stands)
def set_flags(turn: Turn, ask: SetNodeFlags) -> Done[Node]:
    """Set and clear flags on all the nodes, or on none. A repeat changes nothing."""
    node_ids = (ask.node_id, *ask.more)
    nodes = [turn.node(node_id) for node_id in node_ids]
    if NodeFlag.DRAINING in ask.set_flags and not ask.accept_loss:
        for node in nodes:
            if NodeFlag.DRAINING not in node.flags:
                keys = turn.state.cluster.attempts_on(node.node_id)
                work_loss.refuse(turn, keys, work_loss.DRAIN)
    for node_id in node_ids:
        _set_flags(turn, ask, turn.node(node_id))
    return Done(turn.node(ask.node_id), ask.node_id)


def _set_flags(turn: Turn, ask: SetNodeFlags, node: Node) -> None:
    node_id, actor = node.node_id, ask.caller.actor
    for flag in sorted(ask.set_flags - node.flags):
        event: on_node.NodeEvent = on_node.FlagSet(flag=flag, reason=ask.reason, by=actor)
        turn.step_node(node_id, event, actor=actor, cause=f"{flag.value}: {ask.reason}")
        if flag is NodeFlag.DRAINING:
            turn.move_away(node_id, actor=actor)
    for flag in sorted(ask.clear_flags & node.flags):
        turn.step_node(node_id, on_node.FlagCleared(flag=flag), actor=actor, cause=flag.value)
        if flag is NodeFlag.QUARANTINED:
            quarantine.released(turn, node_id)
        stragglers.begin_anew(turn, node_id)


@once(_as_it_stands)
def accept_gpus(turn: Turn, ask: AcceptGpus) -> Done[Node]:
    """Use the GPUs that a node has reported beyond those with which it was accepted."""
    node = turn.node(ask.node_id)
    if node.unaccepted:
        accepted = gpus_in_words(node, node.unaccepted)
        event = on_node.GpusAccepted()
        node = turn.step_node(ask.node_id, event, actor=ask.caller.actor, cause=accepted)
    return Done(node, ask.node_id)


@once(nothing)
def forget(turn: Turn, ask: ForgetNode) -> Done[None] | None:
    """Delete a node that is DOWN and has no attempts; an unknown node is no error."""
    node = turn.state.cluster.nodes.get(ask.node_id)
    if node is None:
        return None
    if node.state is not NodeState.DOWN:
        raise IllegalTransition(
            f"node {ask.node_id} is {node.state.value}",
            hint=f"stop its agent, then: dlq admin node fence {ask.node_id}",
        )
    if turn.state.cluster.capacity.claims.get(ask.node_id):
        raise Conflict(f"node {ask.node_id} still holds attempts")
    _forget(turn, ask.node_id, ask.caller.actor)
    return Done(None, ask.node_id)


def lose(turn: Turn, node_id: NodeId, *, actor: str, cause: str) -> None:
    """Take a node down on which none of our processes can run any more: its attempts are lost."""
    turn.end_session(node_id)
    _lose_attempts(turn, node_id, actor=actor, cause=cause)
    turn.step_node(node_id, on_node.Lost(), actor=actor, cause=cause)


def drop(turn: Turn, node_id: NodeId, *, actor: str, cause: str) -> None:
    """Lose and delete a node whose machine is gone for good."""
    if turn.state.cluster.nodes[node_id].state is not NodeState.DOWN:
        lose(turn, node_id, actor=actor, cause=cause)
    _forget(turn, node_id, actor)


# --- helpers, in order of use ---------------------------------------------------------------------


def _outrank(turn: Turn, ask: OpenSession) -> None:
    """Raise our epoch above one that the agent has obeyed (we are a restored backup)."""
    if ask.highest_epoch - turn.state.epoch > _EPOCH_LEAP:
        raise InvalidRequest(f"epoch {ask.highest_epoch} is no master's", field="highest_epoch")
    turn.state.epoch = ask.highest_epoch + 1
    turn.batch.meta["epoch"] = str(turn.state.epoch)
    turn.note("epoch_raised", node_id=ask.node_id, epoch=turn.state.epoch)


def _register(turn: Turn, ask: OpenSession) -> None:
    cluster = turn.state.cluster
    before = cluster.nodes.get(ask.node_id)
    actor = f"node:{ask.node_id}"
    same = instances.is_same_machine(turn, ask)  # a boot of another machine ends nothing here
    if before is None:
        cluster.put_node(Node(ask.node_id, ask.facts.gpus, registered_time_s=turn.now_s))
    elif before.boot_id and before.boot_id != ask.facts.boot_id and same:
        _lose_attempts(turn, ask.node_id, actor=actor, cause="the host has booted")
    elif before.state is NodeState.DOWN:
        _lose_attempts(turn, ask.node_id, actor=actor, cause="back after it was given up")
    if before is None or _differs(before, ask.facts) or before.state is not NodeState.UP:
        node = turn.step_node(ask.node_id, ask.facts, actor=actor)
        shown = node.unaccepted - (frozenset() if before is None else before.unaccepted)
        if shown:
            turn.note(
                "node_gpus_withheld",
                node_id=ask.node_id,
                actor=actor,
                cause=f"{gpus_in_words(node, shown)}: not among those it was accepted with",
            )
        gpu_types.resolve_waiting(turn)


def gpus_in_words(node: Node, indexes: frozenset[int]) -> str:
    """`2 x h100-80gb (4, 5)`, by type."""
    types: dict[str, list[str]] = {}
    for gpu in node.gpus:
        if gpu.index in indexes:
            types.setdefault(gpu.gpu_type, []).append(str(gpu.index))
    words = (f"{len(its)} x {kind} ({', '.join(its)})" for kind, its in sorted(types.items()))
    return " + ".join(words)


def _differs(node: Node, facts: on_node.Registered) -> bool:
    return any(getattr(node, name) != getattr(facts, name) for name in facts.__slots__)


def _must_be_current(turn: Turn, node_id: NodeId, session_id: int) -> None:
    if turn.state.nodes.sessions.get(node_id) != session_id:
        raise StaleFence(f"session {session_id} of node {node_id} is over")


def _take_progress(turn: Turn, node_id: NodeId, word: ReportedProgress) -> None:
    """Take in the progress of a running rank. A rank that should not run, and was never reported,
    ends the session: the next hello compares all ranks.
    """
    found = ranks.standing(turn, node_id, word.key, word.epoch, word.node_rank)
    if not found.ours:
        if (word.key, word.node_rank) not in turn.state.nodes.unowned.get(node_id, {}):
            cause = f"{word.key} runs for nobody"
            turn.note("node_out_of_step", node_id=node_id, actor=f"node:{node_id}", cause=cause)
            turn.end_session(node_id)
        return
    if word.node_rank == 0:
        _note_start(turn, word)
    if word.node_rank == 0 and word.age_s is not None:
        beat = Beat(word.step, word.total, word.loss, turn.now_s - word.age_s)
        resume_times.hear(turn, word.key, beat)
        turn.state.jobs.beats[word.key.job_id] = beat
        paces.hear(turn, word.key, beat)
        speeds.hear(turn, word.key, beat)
    elif word.step is not None:  # another rank of the gang: shown if the job stalls
        steps = turn.state.attempts.stalls.steps
        steps.setdefault(word.key.job_id, {})[word.node_rank] = word.step


def _note_start(turn: Turn, word: ReportedProgress) -> None:
    start = turn.state.attempts.stalls.starts.get(word.key.job_id)
    if start is None or start.attempt != word.key.number:
        first_steps.hear(turn, word)
    elif start.due_s < math.inf:
        first_steps.heard_again(turn, start, None if word.step is not None else word.age_s)


def _watch_silence_of(turn: Turn, node: Node) -> None:
    state, node_id = turn.state, node.node_id
    known_s = state.nodes.contacts.get(node_id)
    contact_s = state.started_s if known_s is None else known_s
    silent_s, heard = turn.now_s - contact_s, node
    while (event := on_node.due_event(heard.state, silent_s, state.terms)) is not None:
        cause = f"silent for {round(silent_s, 1)} s"
        heard = turn.step_node(node_id, event, cause=cause)
        if heard.state is NodeState.UNREACHABLE:
            _mark_unknown(turn, node_id)
    if heard.state is NodeState.UNREACHABLE:
        _requeue_after_hold(turn, node_id, contact_s)
    elif heard.state is NodeState.UP:
        unaccounted.watch(turn, node_id)


def _mark_unknown(turn: Turn, node_id: NodeId) -> None:
    """Make attempts UNKNOWN, also a gang with one silent rank. No rank is stopped."""
    for key in turn.state.cluster.attempts_on(node_id):
        if turn.state.cluster.attempts[key].state is not AttemptState.UNKNOWN:
            turn.step_attempt(
                key, on_attempt.NodeSilent(), actor="master", cause=f"node {node_id} is silent"
            )


def _return_attempts(turn: Turn, node_id: NodeId) -> None:
    """Return UNKNOWN attempts to the state of their ranks, if all their nodes answer again."""
    cluster = turn.state.cluster
    for key in turn.state.cluster.attempts_on(node_id):
        attempt = cluster.attempts[key]
        if attempt.state is not AttemptState.UNKNOWN or turn.state.nodes.is_unaccounted(attempt):
            continue
        nodes = [cluster.nodes[slot.node_id] for slot in attempt.place.slots]
        if all(node.state in (NodeState.UP, NodeState.SUSPECT) for node in nodes):
            reports.settle_return(turn, key)


def _note_freeze(turn: Turn) -> None:
    """Freeze requeues while many nodes are silent at once: then the fault is probably ours."""
    state = turn.state
    nodes = state.cluster.nodes
    marked = [nodes[node_id] for node_id in state.cluster.capacity.marked]
    frozen = frozen_now(marked, turn.now_s, state.terms, state.loop_lag_s, len(nodes))
    if frozen != state.frozen:
        state.frozen = frozen
        turn.note("requeues_frozen" if frozen else "requeues_thawed", cause=_freeze_cause(turn))


def _freeze_cause(turn: Turn) -> str:
    state = turn.state
    if state.loop_lag_s > state.terms.loop_lag_limit_s:
        return f"the master is {state.loop_lag_s:.0f} s late"
    nodes = state.cluster.nodes.values()
    silent = sum(node.state is NodeState.UNREACHABLE for node in nodes)
    return f"{silent} of {len(nodes)} nodes are silent"


def _requeue_after_hold(turn: Turn, node_id: NodeId, contact_s: float) -> None:
    """Lose attempts whose hold and margin are over: none of their processes can run any more."""
    state = turn.state
    if state.frozen:
        return
    longer_s = state.cluster.nodes[node_id].hold_extension_s
    for key in turn.state.cluster.attempts_on(node_id):
        hold_s = state.cluster.attempts[key].lease.hold_s + longer_s
        if turn.now_s >= requeue_time_s(contact_s, hold_s, state.terms):
            reports.lose(
                turn,
                key,
                actor="master",
                cause=f"node {node_id} silent beyond the hold",
                node_id=node_id,
            )
    lost_s = requeue_time_s(contact_s, state.terms.hold_s + longer_s, state.terms)
    if turn.now_s >= lost_s and not turn.state.cluster.attempts_on(node_id):
        since_s = round(turn.now_s - contact_s)
        turn.end_session(node_id)
        turn.step_node(node_id, on_node.Lost(), cause=f"silent for {since_s} s")


def _lose_attempts(turn: Turn, node_id: NodeId, *, actor: str, cause: str) -> None:
    for key in turn.state.cluster.attempts_on(node_id):
        reports.lose(turn, key, actor=actor, cause=cause, node_id=node_id)


def _forget(turn: Turn, node_id: NodeId, actor: str) -> None:
    turn.end_session(node_id)
    for row in turn.state.attempts.outbox.of_node(node_id):
        turn.delivered(row.sequence)  # no agent will take it
    turn.state.cluster.remove_node(node_id)
    turn.state.nodes.contacts.forget(node_id)
    turn.state.nodes.greeted.discard(node_id)
    instances.forget(turn, node_id)
    turn.state.nodes.unaccounted.pop(node_id, None)
    turn.state.nodes.unexplained.pop(node_id, None)
    for told in (
        turn.state.nodes.holds_sent,
        turn.state.nodes.unowned,
        turn.state.nodes.unreleased,
    ):
        told.pop(node_id, None)
    turn.state.nodes.gpu_figures.pop(node_id, None)
    turn.state.nodes.unused_gpus.pop(node_id, None)
    turn.state.loans.forget(node_id)
    revocations.leave(turn, NODE, node_id)
    quarantine.released(turn, node_id)
    turn.batch.forgotten_nodes.append(node_id)
    turn.note("node_forgotten", node_id=node_id, actor=actor)
