"""Lanes and bars of the next hours: running jobs, likely starts, promises and reservations.

All of it is pure. A bar has two ends, and a waiting job's start also the earliest and the latest
instant of its forecast. An end that nothing tells is open. Of another user's job no more is here
than its list shows.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlq.v1 import job_pb2
from dlq.v1.reservation_service_pb2 import Reservation
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import clean_line
from dlq_cli.text.elastic import gpus_now
from dlq_cli.text.promises import GUARANTEED, target_s
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.wire import from_duration, from_timestamp

RUNS, STARTS, PROMISED, RESERVED = "runs", "starts", "promised", "reserved"
BY_JOBS, BY_NODES = "jobs", "nodes"
MOST_LANES = 1_000
NEVER_S = 1e11  # an open end


class FutureBar(NamedTuple):
    """A span of time in a lane."""

    kind: str
    begin_s: float
    end_s: float  # NEVER_S: nothing tells it
    early_s: float = 0.0  # of a forecast start, one time in ten; of a run: it lasts until then
    late_s: float = 0.0
    words: str = ""
    job_id: str = ""  # whose page opens; empty: none does
    user: str = ""
    gpus: int = 0
    merged: int = 1  # so many bars that are one on the screen


class FutureLane(NamedTuple):
    """A line of the picture."""

    name: str
    bars: Sequence[FutureBar]


class FutureSeen(NamedTuple):
    """The answers of the master at one instant."""

    at_s: float
    running: Sequence[job_pb2.Job]
    waiting: Sequence[job_pb2.Job]
    reservations: Sequence[Reservation]
    more: bool = False  # there are more jobs than were asked for


def of_team(seen: FutureSeen, team: str) -> FutureSeen:
    """The jobs of one team; all, where none is named."""
    if not team:
        return seen
    return seen._replace(
        running=[job for job in seen.running if job.team == team],
        waiting=[job for job in seen.waiting if job.team == team],
    )


def lanes_of(seen: FutureSeen, by: str) -> list[FutureLane]:
    """All lanes: reservations first, then by the end or by the likely start."""
    return _by_nodes(seen) if by == BY_NODES else _by_jobs(seen)


def bars_of(job: job_pb2.Job, at_s: float) -> Iterator[FutureBar]:
    """The run or the likely start of a job, and the last slot in which its promise is kept."""
    own = FutureBar(
        RUNS, at_s, NEVER_S, words=_words(job), job_id="" if job.redacted else job.job_id,
        user=clean_line(job.user), gpus=gpus_now(job),
    )  # fmt: skip
    if job.HasField("attempt_state"):
        ran_s = from_duration(job.run_duration)
        if job.HasField("start_time"):
            ran_s = min(ran_s, max(0.0, at_s - from_timestamp(job.start_time)))
        end_s = at_s + _left_s(job)
        sure_s = end_s if end_s < NEVER_S else at_s
        yield own._replace(begin_s=at_s - ran_s, end_s=end_s, early_s=sure_s)
    elif job.HasField("start_estimate") and job.start_estimate.HasField("likely_time"):
        yield _likely(own, job)
    promise = job.promise
    if promise.state == GUARANTEED and promise.HasField("slack_duration"):
        begin_s = at_s + max(0.0, from_duration(promise.slack_duration))
        yield own._replace(kind=PROMISED, begin_s=begin_s, end_s=target_s(promise))


def _likely(own: FutureBar, job: job_pb2.Job) -> FutureBar:
    range_ = job.start_estimate
    begin_s = from_timestamp(range_.likely_time)
    early_s = from_timestamp(range_.earliest_time) if range_.HasField("earliest_time") else begin_s
    late_s = from_timestamp(range_.latest_time) if range_.HasField("latest_time") else NEVER_S
    return own._replace(
        kind=STARTS, begin_s=begin_s, end_s=begin_s + _left_s(job), early_s=early_s, late_s=late_s
    )


def _left_s(job: job_pb2.Job) -> float:
    """How long it goes on: by its estimate, at most by its limit; NEVER_S: neither is known."""
    known = []
    if job.run_estimate.HasField("run_duration"):
        left_s = from_duration(job.run_estimate.run_duration) - from_duration(job.run_duration)
        known += [left_s] if left_s > 0 else []
    if job.HasField("time_left_duration"):
        known.append(from_duration(job.time_left_duration))
    return min(known, default=NEVER_S)


def _words(job: job_pb2.Job) -> str:
    """`17 train (alice), 8 GPUs`; of another user's job no name is known."""
    name = " ".join(filter(None, (shown_id(job), clean_line(job.name))))
    user = f" ({clean_line(job.user)})" if job.user else ""
    gpus = gpus_now(job)
    return f"{name}{user}, {gpus} GPU{'s' if gpus != 1 else ''}"


def _by_jobs(seen: FutureSeen) -> list[FutureLane]:
    held = [FutureLane(*_reserved(one)) for one in seen.reservations]
    found = [list(bars_of(job, seen.at_s)) for job in (*seen.running, *seen.waiting)]
    told = sorted((bars for bars in found if bars), key=_first)
    return [*held, *(FutureLane(bars[0].words, bars) for bars in told)]


def _first(bars: Sequence[FutureBar]) -> tuple[bool, float]:
    """Running jobs by their ends, then waiting ones by their starts."""
    first = bars[0]
    return first.kind != RUNS, first.end_s if first.kind == RUNS else first.begin_s


def _reserved(one: Reservation) -> tuple[str, list[FutureBar]]:
    words = " ".join(filter(None, (f"reservation {one.reservation_id}", clean_line(one.reason))))
    bar = FutureBar(
        RESERVED, from_timestamp(one.begin_time), from_timestamp(one.end_time), words=words
    )
    return f"{words}: {compress_hostlist(one.node_ids)}", [bar]


def _by_nodes(seen: FutureSeen) -> list[FutureLane]:
    """The lanes of each node, one for jobs side by side; then the starts, whose nodes are open."""
    on_nodes: dict[str, list[FutureBar]] = defaultdict(list)
    open_: list[FutureBar] = []
    for one in seen.reservations:
        _, bars = _reserved(one)
        for node_id in one.node_ids:
            on_nodes[node_id] += bars
    for job in (*seen.running, *seen.waiting):
        for bar in bars_of(job, seen.at_s):
            for node_id in job.node_ids if bar.kind == RUNS else ():
                on_nodes[node_id].append(bar)
            open_ += [bar] if bar.kind != RUNS else []
    groups: Mapping[str, list[FutureBar]] = {
        **{node_id: on_nodes[node_id] for node_id in sorted(on_nodes)},
        "likely starts": [bar for bar in open_ if bar.kind == STARTS],
        "promises": [bar for bar in open_ if bar.kind == PROMISED],
    }
    return [FutureLane(name, row) for name, bars in groups.items() for row in packed(bars)]


def packed(bars: Iterable[FutureBar]) -> list[list[FutureBar]]:
    """As few rows as possible in which no two bars overlap."""
    rows: list[list[FutureBar]] = []
    free: list[tuple[float, int]] = []  # when a row is free, and its number
    for bar in sorted(bars, key=lambda one: (one.begin_s, one.job_id)):
        if free and free[0][0] <= bar.begin_s:
            _, row = heapq.heappop(free)
            rows[row].append(bar)
        else:
            row = len(rows)
            rows.append([bar])
        heapq.heappush(free, (bar.end_s, row))
    return rows
