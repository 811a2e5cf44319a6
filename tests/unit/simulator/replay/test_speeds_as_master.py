"""A cluster file tells speeds to policies: a replay starts the jobs that a master starts, on the
same nodes at the same instants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from dlq_master.control.config import GpuTypeConfig
from dlq_master.control.stimuli import AskedDeadline, SubmitJob
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.resources import Request
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent

SLOW = 0.25
FAST_TYPE, SLOW_TYPE = "h100", "t4"
TYPES = {FAST_TYPE: 1.0, SLOW_TYPE: SLOW}
Start = tuple[int, str, str]  # after so many seconds, which job, on which type


def a_cluster(nodes: int) -> ClusterSpec:
    """So many nodes of each type, with one GPU each."""
    groups = [
        NodeGroup(name=kind, count=nodes, gpus=1, gpu_type=kind, speed=speed)
        for kind, speed in TYPES.items()
    ]
    return ClusterSpec(name="c", groups=tuple(groups))


def type_of(attempt: Attempt) -> str:
    (node_id,) = attempt.lease.allocation.node_ids
    return node_id.partition("-")[0]


def a_row(name: str, run_s: int, gpu_type: str | None = None, due_s: int | None = None) -> TraceJob:
    return TraceJob(
        job_id=name,
        submit_time_s=0,
        num_gpus=1,
        duration_s=run_s,
        gpu_type=gpu_type,
        deadline_s=due_s,
        kind="" if due_s is None else "slo",
    )


def replayed(rows: Sequence[TraceJob], policy: str, words: dict[str, str]) -> list[Start]:
    settings = [f"{word}={value}" for word, value in words.items()]
    (chosen,) = read_settings([policy], settings)
    seen: dict[str, Start] = {}

    def watch(cluster: Cluster, _decided: object, now_s: float) -> None:
        for attempt in cluster.attempts.values():
            job = cluster.jobs[attempt.key.job_id]
            seen.setdefault(job.name, (int(now_s), job.name, type_of(attempt)))

    replay(Trace.of("t", rows), a_cluster(1), chosen, watch=watch)
    return sorted(seen.values())


def a_master(
    policy: str, words: dict[str, str], nodes: int
) -> tuple[Master, dict[NodeId, SimAgent]]:
    config = replace(config_of(policy, **words), gpu_types={SLOW_TYPE: GpuTypeConfig(speed=SLOW)})
    master = Master(config)
    agents = {
        node_id: SimAgent(master, node_id, gpus=1, gpu_type=kind)
        for kind in TYPES
        for node_id in [NodeId(f"{kind}-{number}") for number in range(1, nodes + 1)]
    }
    for agent in agents.values():
        agent.hello()
    return master, agents


def lived(rows: Sequence[TraceJob], policy: str, words: dict[str, str]) -> list[Start]:
    """Under a master, whose agents run each job for as long as its work takes on its GPU."""
    master, agents = a_master(policy, words, 1)
    begin_s = master.clock.now_s()
    asked = list(_asked(master, rows))
    answers = master.turn(*[ask for _, ask in asked])
    names = {it.job.job_id: row for it, (row, _) in zip(answers, asked, strict=True)}
    found, ends = list[Start](), dict[AttemptKey, float]()
    while len(found) < len(rows) or ends:
        for key, attempt in list(master.state.cluster.attempts.items()):
            (node_id,) = attempt.lease.allocation.node_ids
            agents[node_id].obey()
            if key in ends or attempt.started_time_s is not None:
                continue
            agents[node_id].start(key)
            agents[node_id].report()
            row, kind = names[key.job_id], type_of(attempt)
            found.append((int(master.clock.now_s() - begin_s), row.job_id, kind))
            ends[key] = master.clock.now_s() + row.duration_s / TYPES[kind]
        master.tick(1.0)
        for agent in agents.values():
            agent.heartbeat()
        for key in [key for key, end_s in ends.items() if master.clock.now_s() >= end_s - 1e-6]:
            del ends[key]
            agent = next(one for one in agents.values() if key in one.ranks)
            agent.exit(key, 0)
            agent.report()
    master.close()
    return sorted(found)


def _asked(master: Master, rows: Sequence[TraceJob]) -> Iterator[tuple[TraceJob, SubmitJob]]:
    for row in rows:
        run_s = row.duration_s
        if row.gpu_type == SLOW_TYPE:  # the user names that on this type
            run_s /= SLOW
        ask = master.submission(1, run_estimate_s=float(run_s), request_id=row.job_id)
        deadlines = () if row.deadline_s is None else (AskedDeadline(1.0, after_s=row.deadline_s),)
        request = Request(gpus=1, gpu_type=row.gpu_type)
        yield row, replace(ask, name=row.job_id, request=request, deadlines=deadlines)


SHORT = [
    a_row("a", 100),
    a_row("b", 30),
    a_row("c", 20, SLOW_TYPE),
    a_row("d", 50),
    a_row("e", 60, FAST_TYPE),
]


@pytest.mark.parametrize("policy", ["srtf", "fifo", "sf"])
def test_a_replay_starts_what_a_master_starts(policy: str) -> None:
    assert replayed(SHORT, policy, {}) == lived(SHORT, policy, {})


def test_a_replay_promises_what_a_master_promises() -> None:
    """On slow GPUs a job takes four times as long: only one deadline allows that."""
    rows = [
        a_row("long", 3000, due_s=9000),
        a_row("wide", 3000, due_s=20_000),
        a_row("late", 8000, due_s=12_000),
    ]
    words = {"margin": "0", "spot": "srtf"}
    promised = promised_live(rows, words)
    assert promised_in_replay(rows, words) == promised
    assert promised == {"long": FAST_TYPE, "late": FAST_TYPE, "wide": SLOW_TYPE}


def promised_in_replay(rows: Sequence[TraceJob], words: dict[str, str]) -> dict[str, str]:
    """Of each job that is promised a deadline, the type of its promise; "" if it may get one."""
    seen: dict[str, str] = {}

    def watch(cluster: Cluster, _decided: object, now_s: float) -> None:
        for job in cluster.jobs.values() if now_s == 0 else ():
            if job.promised is not None:
                seen[job.name] = job.gpu_type_promised

    settings = [f"{word}={value}" for word, value in words.items()]
    (chosen,) = read_settings(["dlq"], settings)
    replay(Trace.of("t", rows), a_cluster(3), chosen, watch=watch)
    return seen


def promised_live(rows: Sequence[TraceJob], words: dict[str, str]) -> dict[str, str]:
    master, _ = a_master("dlq", words, 3)
    answers = master.turn(*[ask for _, ask in _asked(master, rows)])
    master.tick(1.0)
    jobs = [master.job(answer.job.job_id) for answer in answers]
    master.close()
    return {job.name: job.gpu_type_promised for job in jobs if job.promised is not None}
