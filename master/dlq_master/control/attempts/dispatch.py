"""Commands for agents: rows of the outbox, completed with all that the node must know.

The answer to an agent's hello names all ranks that should run on its node, and all that must end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from dlq_master.control.attempts.ranks import RankRole, ranks_on, role_of
from dlq_master.control.loop.turn import State, Turn
from dlq_master.control.stimuli import (
    Command,
    Launch,
    Resume,
    Save,
    Signal,
    Stop,
    Suspend,
    User,
)
from dlq_master.model.attempts import live_resize
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.gang import is_reduced
from dlq_master.model.attempts.grace import grace_s, limit_left_s
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.person import belongs
from dlq_master.model.nodes.node import Node
from dlq_master.model.nodes.type_speeds import GangPart, batch_shares
from dlq_master.model.resources import Slot
from dlq_master.model.transitions import StopCause
from dlq_master.store.batch import Intention

SUSPEND, RESUME = "suspend", "resume"  # kinds of commands
RESIZE = "resize"  # the cause of a stop of one rank, while the others go on


class Specs(Protocol):
    """The stored specs of jobs."""

    def spec(self, job_id: JobId) -> bytes | None: ...


def launches_for(turn: Turn, node_id: NodeId) -> tuple[Launch, ...]:
    """For a welcome: all ranks that should run there. The agent starts the missing ones."""
    return tuple(
        launch_command(turn.state, turn.archive, attempt, rank, turn.now_s)
        for attempt, rank, found in ranks_on(turn.state.cluster, node_id)
        if found is RankRole.RUNS
        and attempt.suspension is None  # its agent has it, or it is lost
        and (attempt.key, rank) not in turn.state.nodes.unaccounted.get(node_id, {})
    )


def stops_for(turn: Turn, node_id: NodeId) -> tuple[Stop, ...]:
    """For a welcome: all ranks that must end there, also those that the hello has shown."""
    stops = [
        stop_command(turn.state, row, turn.now_s)
        for row in turn.state.attempts.outbox.of_node(node_id)
        if row.kind == "stop"
    ]
    told = {(stop.key, stop.node_rank) for stop in stops}
    stops += [
        stop_of(attempt, rank, turn.now_s)
        for attempt, rank, found in ranks_on(turn.state.cluster, node_id)
        if found is RankRole.LEAVES and (attempt.key, rank) not in told
    ]
    return tuple(stops)


def launch_command(
    state: State, specs: Specs, attempt: Attempt, rank: int, now_s: float, sequence: int = 0
) -> Launch:
    """Run `rank` of a living attempt on its node."""
    job = state.cluster.jobs[attempt.key.job_id]
    slots = [attempt.slot_of(rank) for rank in range(len(attempt.ranks))]
    nodes = [state.cluster.nodes.get(status.node_id) for status in attempt.ranks]
    own, joining = slots[rank], attempt.ranks[rank].joined or attempt.ranks[rank].joining
    owner = owner_of(state, job)
    left_s = limit_left_s(job, attempt if attempt.ranks[rank].joining else None, now_s)
    recording = state.trials.traffic.get(attempt.key)
    trial = is_reduced(attempt, job)
    return Launch(
        sequence=sequence,
        key=attempt.key,
        epoch=attempt.epoch,
        node_id=attempt.ranks[rank].node_id,
        node_rank=rank,
        gpu_indexes=() if own is None else own.gpu_indices,
        node_ids=tuple(status.node_id for status in attempt.ranks),
        node_addresses=tuple("" if it is None else it.address or it.hostname for it in nodes),
        master_port=(joining and live_resize.port(attempt)) or attempt.master_port or 0,
        spec=specs.spec(job.spec_id) or b"",
        array=job.array,
        array_index=job.array_index,
        name=job.name,
        queue=job.queue,
        user=job.user if owner is None else owner.host_name,
        # A user who is gone has no account to run as: the agent refuses a negative id.
        uid=-1 if owner is None else owner.uid,
        gid=-1 if owner is None else owner.gid,
        groups=() if owner is None else owner.groups,
        resume_from=attempt.resume_from.path if attempt.resume_from and not trial else "",
        hold_s=attempt.lease.hold_s,
        grace_s=attempt.grace_s or grace_s(job.saves, job.rules),
        restart_count=attempt.key.number - 1,
        time_left_s=None if left_s is None or trial else max(1.0, left_s),
        at_barrier=attempt.at_barrier,
        core_indexes=() if own is None else own.core_indices,
        node_gpu_counts=(
            ()
            if job.request.without_gpus
            else tuple([0 if slot is None else len(slot.gpu_indices) for slot in slots])
        ),
        node_core_counts=tuple(
            [0 if slot is None else len(slot.core_indices) for slot in slots]
            if job.request.without_gpus
            else ()
        ),
        node_gpu_types=() if job.request.without_gpus else tuple(map(_type_of, nodes, slots)),
        node_batch_shares=_shares(state, nodes, slots) if job.request.mixed else (),
        record_s=None if recording is None or joining else recording.window_s,
        trial=trial,
        sizes=job.request.sizes,
        fixed=attempt.fixed,
        joins=joining,
        check=job.check,
        port_first=state.config.jobs.port_first,
        port_last=state.config.jobs.port_last,
        node_ports=(
            ()
            if attempt.barrier_time_s is None or joining
            else tuple(status.ports for status in attempt.ranks)
        ),
        peers=peers_of(state, job) if attempt.together else (),
    )


def peers_of(state: State, job: Job) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Where the members of its group are that run: `address:port` of each rank, in the order of
    the member's jobs. A rank without a port of its own is told with that of its first rank.
    """
    cluster = state.cluster
    found: dict[str, list[str]] = {}
    group = job.group
    for job_id in () if group is None else sorted(cluster.groups.get(group.array_id, ())):
        peer = cluster.jobs[job_id]
        attempt = cluster.live_attempt(peer)
        if group is not None and attempt is not None:
            member, _ = group.member(peer.array_index)
            found.setdefault(member.name, []).extend(_addresses(state, attempt))
    return tuple((name, tuple(addresses)) for name, addresses in found.items())


def _addresses(state: State, attempt: Attempt) -> Iterator[str]:
    for status in attempt.ranks:
        node = state.cluster.nodes.get(status.node_id)
        host = status.node_id if node is None else node.address or node.hostname
        port = status.ports[0] if status.ports else attempt.master_port or 0
        yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def owner_of(state: State, job: Job) -> User | None:
    """The user whose account the job runs in; None when they are gone, also if somebody else has
    their name.
    """
    user = state.people.users.get(job.user)
    if user is None or not belongs(job, user.name, user.person, user.created_time_s):
        return None
    return user


def _type_of(node: Node | None, slot: Slot | None) -> str:
    """Of these GPUs, which are of one type; empty: the gang has none there now."""
    if node is None or slot is None:
        return ""
    return next((kind for kind, owned in node.masks().items() if slot.mask & owned), "")


def _shares(
    state: State, nodes: Sequence[Node | None], slots: Sequence[Slot | None]
) -> tuple[float, ...]:
    """By declared speeds: these are the same for all ranks, whenever each is launched."""
    speeds = state.cluster.speeds
    parts = [
        GangPart(0 if slot is None else slot.mask.bit_count(), speeds.of(_type_of(node, slot)))
        for node, slot in zip(nodes, slots, strict=True)
    ]
    return batch_shares(parts)


def _shall_run(state: State, launch: Intention) -> bool:
    fence = (launch.key, launch.epoch, launch.node_rank)
    if (launch.key, launch.node_rank) in state.nodes.unaccounted.get(launch.node_id, {}):
        return False
    return role_of(state.cluster, launch.node_id, *fence) is RankRole.RUNS


def stop_command(state: State, row: Intention, now_s: float) -> Stop:
    """End a rank; the fence is that of its launch."""
    attempt = state.cluster.attempts.get(row.key)
    return Stop(
        sequence=row.sequence,
        key=row.key,
        epoch=row.epoch,
        node_id=row.node_id,
        node_rank=row.node_rank,
        cause=row.cause,
        grace_s=row.grace_s,
        delay_s=0.0 if attempt is None else delay_s(attempt, now_s),
    )


def stop_of(attempt: Attempt, rank: int, now_s: float) -> Stop:
    """End a rank that is on its way out, by no command in particular."""
    cause, grace_s = (attempt.stop_cause or StopCause.PREEMPT).value, attempt.grace_s
    if attempt.stop_cause is None and attempt.resize is not None:
        cause, grace_s = RESIZE, attempt.resize.grace_s
    return Stop(
        sequence=0,
        key=attempt.key,
        epoch=attempt.epoch,
        node_id=attempt.ranks[rank].node_id,
        node_rank=rank,
        cause=cause,
        grace_s=grace_s or 0.0,
        delay_s=delay_s(attempt, now_s),
    )


def delay_s(attempt: Attempt, now_s: float) -> float:
    """How long its nodes wait before the notice: whenever they are told, it comes at one
    instant.
    """
    due_s = attempt.notice_due_s
    if attempt.stop_cause is None and attempt.resize is not None:
        due_s = attempt.resize.due_s
    return 0.0 if due_s is None else max(0.0, due_s - now_s)


def word_to_rank(row: Intention, attempt: Attempt) -> Signal | Save | Suspend | Resume:
    """The command for a rank that goes on."""
    rank = (row.sequence, row.key, row.epoch, row.node_id, row.node_rank)
    sequence, key, epoch, node_id, node_rank = rank
    if row.kind == "signal":
        return Signal(
            sequence=sequence,
            key=key,
            epoch=epoch,
            node_id=node_id,
            node_rank=node_rank,
            signal=row.cause,
        )
    if row.kind == SUSPEND:
        return Suspend(
            sequence=sequence,
            key=key,
            epoch=epoch,
            node_id=node_id,
            node_rank=node_rank,
            number=int(row.cause),
        )
    if row.kind == RESUME:
        slot = attempt.slot_of(node_rank)
        return Resume(
            sequence=sequence,
            key=key,
            epoch=epoch,
            node_id=node_id,
            node_rank=node_rank,
            number=int(row.cause),
            gpu_indexes=() if slot is None else slot.gpu_indices,
        )
    return Save(
        sequence=sequence,
        key=key,
        epoch=epoch,
        node_id=node_id,
        node_rank=node_rank,
        number=int(row.cause),
    )


def commands_for(
    state: State, specs: Specs, rows: Iterable[Intention], now_s: float
) -> dict[NodeId, list[Command]]:
    """The commands for each node that has a session, in the order of the rows.

    A launch whose attempt has ended meanwhile is dropped: its stop is in the outbox too.
    """
    sent: dict[NodeId, list[Command]] = defaultdict(list)
    for row in rows:
        if row.node_id not in state.nodes.sessions:
            continue
        attempt = state.cluster.attempts.get(row.key)
        if row.kind == "stop":
            sent[row.node_id].append(stop_command(state, row, now_s))
        elif row.kind in ("signal", "save", SUSPEND, RESUME):
            if attempt is not None:
                sent[row.node_id].append(word_to_rank(row, attempt))
        elif attempt is not None and _shall_run(state, row):
            sent[row.node_id].append(
                launch_command(state, specs, attempt, row.node_rank, now_s, row.sequence)
            )
    return sent
