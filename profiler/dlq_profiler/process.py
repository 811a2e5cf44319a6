"""One process: from its recordings to its profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlq_profiler.identity import rank_of, role_of
from dlq_profiler.records.layout import (
    COLLECTIVES,
    SOCKET_SENDS,
    VERBS_SENDS,
    ConnKind,
    RecordSource,
    Side,
    Unseen,
)
from dlq_profiler.records.recording import RecordFile, peer_of
from dlq_profiler.records.requests import Records, Requests, requests_of
from dlq_profiler.results import Method, PeerTraffic, ProcessProfile, Tensors, TrafficReason
from dlq_profiler.transports import collectives, gloo, messages, recurrence
from dlq_profiler.transports.repeats import Iterations

_BYPASS = (Unseen.IO_URING, Unseen.MLX5_DIRECT, Unseen.MLX5_DEVX, Unseen.HIGH_FD)


class _Joined(NamedTuple):
    """The recordings of one process as one: connections counted on, duplicates left out."""

    records: Records
    conns: NDArray[np.void]


def profiles_of(
    recordings: Iterable[RecordFile], tensors: Mapping[int, Sequence[Tensors]] | None = None
) -> tuple[ProcessProfile, ...]:
    """A profile of every process, by pid. `tensors`: the hook's report of each pid."""
    # Two containers have pids of their own, and may start in the same tick.
    groups: dict[tuple[int, int, str], list[RecordFile]] = {}
    for recording in recordings:
        key = (recording.pid, recording.start_ticks, str(rank_of(recording.identity)))
        groups.setdefault(key, []).append(recording)
    told = tensors or {}
    return tuple(profile_of(groups[key], tuple(told.get(key[0], ()))) for key in sorted(groups))


def profile_of(
    recordings: Sequence[RecordFile], tensors: tuple[Tensors, ...] = ()
) -> ProcessProfile:
    """The profile of one process from its recordings, by program and library."""
    newest = max(recordings, key=lambda one: one.opened_ns)
    unseen = Unseen(0)
    for recording in recordings:
        unseen |= recording.unseen
    rank, world_size = rank_of(newest.identity)
    empty = ProcessProfile(
        pid=newest.pid,
        start_ticks=newest.start_ticks,
        comm=newest.comm,
        rank=rank,
        world_size=world_size,
        role=role_of(newest.identity),
        method=Method.NONE,
        reason=TrafficReason.NO_TRAFFIC,
        tensors=tensors,
        records=sum(len(recording.records) for recording in recordings),
        lost=sum(recording.lost for recording in recordings),
        unseen=tuple(str(flag.name).lower() for flag in unseen),
    )
    found = _profile(_joined(recordings), empty)
    if found.reason in (
        TrafficReason.NO_TRAFFIC,
        TrafficReason.NOT_PERIODIC,
        TrafficReason.TOO_FEW_ITERATIONS,
    ):
        if any(way in unseen for way in _BYPASS):
            return replace(found, reason=TrafficReason.BYPASS)
        if unseen & Unseen.GRAPH:
            return replace(found, reason=TrafficReason.GRAPH)
        if found.lost > found.records:
            return replace(found, reason=TrafficReason.RECORDS_LOST)
    return found


def _joined(recordings: Sequence[RecordFile]) -> _Joined:
    # The wrappers saw the plugin's part of NCCL as well.
    by_plugin = any(recording.source == RecordSource.NCCL_PLUGIN for recording in recordings)
    parts, conns, base, since = [], [], 0, 0
    for recording in recordings:
        records = recording.records
        if by_plugin and recording.source != RecordSource.NCCL_PLUGIN:
            records = records[records["op"] < min(COLLECTIVES)]
        records = records.copy()
        records["conn"][records["conn"] > 0] += base
        parts.append(records)
        conns.append(recording.conns)
        base += len(recording.conns)
        since = max(since, recording.whole_from_ns)
    records = np.concatenate(parts)
    records = records[records["ts_ns"] >= since]
    return _Joined(records[np.argsort(records["ts_ns"], kind="stable")], np.concatenate(conns))


def _profile(joined: _Joined, empty: ProcessProfile) -> ProcessProfile:
    calls = collectives.collectives_of(joined.records)
    if len(calls):
        return _of_collectives(calls, joined.conns, empty)
    sockets = requests_of(joined.records, SOCKET_SENDS)
    verbs = requests_of(joined.records, VERBS_SENDS)
    sent = verbs if verbs["size"].sum() > sockets["size"].sum() else sockets
    if not len(sent):
        return empty
    if gloo.is_gloo(sent):
        return _of_gloo(sent, joined.conns, empty)
    return _of_messages(sent, joined.conns, empty)


def _of_collectives(
    calls: Records, conns: NDArray[np.void], empty: ProcessProfile
) -> ProcessProfile:
    ranks = conns["ranks"].astype(np.int64)
    ranks[(ranks == 0) & (conns["kind"] == ConnKind.COMMUNICATOR)] = empty.world_size or 0
    found = collectives.decode(calls, ranks)
    if found is None:
        return replace(empty, method=Method.NCCL, reason=TrafficReason.NOT_PERIODIC)
    sends = found.sends
    profile = _with_iterations(empty, found.iterations, sends, conns)
    # FSDP and the like send shards, which do not show the tensors.
    reduces = found.reduced_share > 0.5
    return replace(
        profile,
        method=Method.NCCL,
        iterations=found.seen,
        sent_bytes=found.sent_bytes,
        coverage=1.0,
        buckets=tuple(found.buckets.tolist()) if reduces else (),
    )


def _of_gloo(sent: Requests, conns: NDArray[np.void], empty: ProcessProfile) -> ProcessProfile:
    recurring = recurrence.recurring(sent)
    decoded = gloo.decode(sent)
    iterations = None
    if recurring is not None:
        iterations = recurring.iterations
    elif decoded is not None:
        iterations = decoded.iterations
    if iterations is None:
        return replace(empty, method=Method.ADDRESSES, reason=TrafficReason.TOO_FEW_ITERATIONS)
    profile = _with_iterations(empty, iterations, sent, conns)
    buckets = () if decoded is None else tuple(decoded.buckets.tolist())
    if recurring is None:
        assert decoded is not None
        return replace(
            profile,
            method=Method.SLOTS,
            iterations=decoded.seen,
            sent_bytes=decoded.sent_bytes,
            coverage=decoded.sent_bytes * iterations.whole / _payload(iterations.holding(sent)),
            buckets=buckets,
        )
    return replace(
        profile,
        method=Method.ADDRESSES,
        iterations=recurring.seen,
        sent_bytes=recurring.sent_bytes,
        coverage=recurring.coverage,
        buffers=tuple(recurring.buffers.tolist()),
        buckets=buckets,
    )


def _of_messages(sent: Requests, conns: NDArray[np.void], empty: ProcessProfile) -> ProcessProfile:
    lists = messages.lists_of(sent)
    if lists is not None:
        return replace(
            _with_iterations(empty, lists.iterations, sent, conns),
            method=Method.MESSAGES,
            iterations=lists.seen,
            sent_bytes=float(lists.one["size"].sum()),
            coverage=lists.coverage,
            messages=tuple(lists.one["size"].tolist()),
            buffers=tuple(recurrence.ranges(lists.one)[0].tolist()),
            peers=_peers(lists.one, conns, 1),
        )
    recurring = recurrence.recurring(sent)
    if recurring is None:
        return replace(empty, reason=TrafficReason.NOT_PERIODIC)
    return replace(
        _with_iterations(empty, recurring.iterations, sent, conns),
        method=Method.ADDRESSES,
        iterations=recurring.seen,
        sent_bytes=recurring.sent_bytes,
        coverage=recurring.coverage,
        buffers=tuple(recurring.buffers.tolist()),
    )


def _with_iterations(
    empty: ProcessProfile, iterations: Iterations, sent: Requests, conns: NDArray[np.void]
) -> ProcessProfile:
    inside = iterations.holding(sent)
    return replace(
        empty,
        reason=None,
        period_s=iterations.period_s,
        jitter=iterations.jitter,
        phases=tuple(iterations.phases(sent).tolist()),
        peers=_peers(inside, conns, iterations.whole),
    )


def _payload(requests: Requests) -> float:
    return float(np.maximum(requests["size"] - gloo.PREAMBLE, 0).sum()) or 1.0


def _peers(requests: Requests, conns: NDArray[np.void], iterations: int) -> tuple[PeerTraffic, ...]:
    conn = requests["conn"]
    summed = np.bincount(conn, weights=requests["size"], minlength=len(conns) + 1)
    counted = np.bincount(conn, minlength=len(conns) + 1)
    found: dict[tuple[str, int], tuple[float, int]] = {}
    for entry in np.flatnonzero(counted[1:]):
        end = conns[entry]
        key = (peer_of(end), int(Side(int(end["side"]))))
        sent, number = found.get(key, (0.0, 0))
        found[key] = (sent + float(summed[entry + 1]), number + int(counted[entry + 1]))
    peers = [
        PeerTraffic(peer, side, sent / iterations, round(number / iterations))
        for (peer, side), (sent, number) in found.items()
    ]
    return tuple(sorted(peers, key=lambda peer: (-peer.sent_bytes, peer.peer)))
