"""Jobs of workers and parameter servers: their tensors, and how unevenly the servers have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from dlq_profiler.all_reduce import exactly
from dlq_profiler.results import (
    JobProfile,
    Method,
    Pattern,
    PeerTraffic,
    ProcessProfile,
    TrafficConfidence,
    TrafficReason,
    TrafficVerdict,
)

_CONNECTED, _ACCEPTED = 1, 2


def is_one(talkers: Sequence[ProcessProfile]) -> bool:
    """Whether these are workers and servers: by their roles if known, else by the direction of
    their connections.

    Workers only connect, all of them to the same servers; servers only accept. A single pair could
    as well be a ring of two. There its messages must lie apart in memory, as tensors do and the
    segments of one buffer do not.
    """
    if not talkers or any(process.method is not Method.MESSAGES for process in talkers):
        return False
    if {process.role for process in talkers} == {"worker", "ps"}:
        return True
    sides = [{peer.side for peer in process.peers} for process in talkers]
    if not all(side in ({_CONNECTED}, {_ACCEPTED}) for side in sides):
        return False
    workers = workers_of(talkers)
    peers = {frozenset(peer.peer for peer in worker.peers) for worker in workers}
    if len(peers) != 1:
        return False
    if len(workers) > 1:
        return True
    return len(workers[0].buffers) == len(workers[0].messages)


def workers_of(talkers: Sequence[ProcessProfile]) -> list[ProcessProfile]:
    return [
        process
        for process in talkers
        if process.role == "worker"
        or (not process.role and all(peer.side == _CONNECTED for peer in process.peers))
    ]


def merged(found: JobProfile, talkers: Sequence[ProcessProfile]) -> JobProfile:
    """The job's profile from those of its workers, without headers (below 64 bytes)."""
    workers = workers_of(talkers)
    lists = [tuple(sorted(worker.messages, reverse=True)) for worker in workers]
    servers = _servers(workers)
    busiest_server = max(server.sent_bytes for server in servers)
    mean = sum(server.sent_bytes for server in servers) / len(servers)
    found = replace(
        found,
        pattern=Pattern.PARAMETER_SERVER,
        servers=servers,
        server_skew=busiest_server / mean,
        bytes_per_iteration=_busiest(found, busiest_server),
    )
    if len(set(lists)) > 1:
        unknown = TrafficVerdict(
            Method.MESSAGES, TrafficConfidence.UNKNOWN, TrafficReason.SELF_CHECK
        )
        return replace(found, sizes=unknown)
    tensors = lists[0]
    exact = exactly(tensors[0], sum(tensors))
    sure = (
        TrafficConfidence.CHECKED
        if len(lists) > 1 or _echoed(talkers, tensors)
        else TrafficConfidence.ASSUMED
    )
    return replace(
        found,
        sizes=TrafficVerdict(Method.MESSAGES, sure),
        model_bytes=exact.model_bytes,
        largest_tensor_bytes=exact.largest,
        skew=exact.skew,
        tensors=tensors,
    )


def _busiest(found: JobProfile, received: float) -> float | None:
    """A server receives the bytes of all workers: its link carries their sum."""
    sent = found.bytes_per_iteration
    return None if sent is None else max(sent, received)


def _servers(workers: Sequence[ProcessProfile]) -> tuple[PeerTraffic, ...]:
    sent: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for peer in chain.from_iterable(worker.peers for worker in workers):
        sent[peer.peer] += int(peer.sent_bytes)
        number[peer.peer] += peer.messages
    return tuple(
        PeerTraffic(peer, _CONNECTED, float(sent[peer]), number[peer])
        for peer in sorted(sent, key=lambda peer: (-sent[peer], peer))
    )


def _echoed(talkers: Sequence[ProcessProfile], tensors: Sequence[int]) -> bool:
    """Whether the servers send the only worker's bytes back to it."""
    servers = [process for process in talkers if process not in workers_of(talkers)]
    back = sorted(chain.from_iterable(server.messages for server in servers), reverse=True)
    return tuple(back) == tuple(tensors)
