"""Counters of what has happened to jobs since the start of the master."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlq_master.control.read_model.flow import Flow
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import EndReason, JobState
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.nodes.node import FlagNote, Node, NodeFlag
from dlq_master.store.batch import Batch
from dlq_master.store.stored_tables import FORESEEN, MACHINES
from dlq_master.store.tables.table import put
from dlq_master.store.tables.tenants import Foreseen
from support.master_harness import Master
from support.metric_pages import page_of
from support.sim_agent import SimAgent


@pytest.fixture
def master() -> Iterator[Master]:
    master = Master()
    SimAgent(master, NodeId("gpu01")).hello()
    yield master
    master.close()


def happened(flow: Flow, *events: JournalEvent, nodes: dict[NodeId, Node] | None = None) -> None:
    flow.publish(Batch(events=list(events)), {}, {}, nodes or {}, {})


def event(kind: str, job: int = 1, **data: str | float) -> JournalEvent:
    return JournalEvent(kind=kind, time_s=100.0, job_id=JobId(job), data=data)


def count(flow_metric: object) -> list[tuple[object, int, float]]:
    return [(labels, sum(one.counts), one.total) for labels, one in flow_metric]  # type: ignore[attr-defined]


def test_a_job_counts_with_its_wait_at_its_first_start_and_with_its_run_at_its_end() -> None:
    master = Master()
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    job_id = master.submit(1).job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    wait = 'dlq_job_wait_seconds_count{class="best_effort",gpus_bucket="1",queue="default"}'
    run = 'dlq_job_run_seconds_{}{{queue="default",state="completed"}}'
    assert wait not in page_of(master.loop.published)
    agent.start(key)
    agent.report()
    told = page_of(master.loop.published)
    assert told[wait] == 1
    assert run.format("count") not in told
    master.tick(30.0)
    agent.exit(key)
    agent.report()
    told = page_of(master.loop.published)
    assert (told[run.format("count")], told[run.format("sum")]) == (1, 30.0)
    assert master.job(job_id).ended
    master.close()


def test_a_wait_is_the_time_for_gpus_and_a_second_start_is_none() -> None:
    flow, master = Flow(), Master()
    job = master.submit(4)
    before = job._replace(queued_s=90.0)
    started = before._replace(first_start_time_s=500.0)
    for row in (started, started._replace(requeues=1)):
        flow.publish(Batch(jobs=[row]), {job.job_id: before}, {}, {}, {})
        before = row
    ((labels, many, total),) = count(flow.waits)
    assert labels == (("class", "best_effort"), ("gpus_bucket", "2-4"), ("queue", "default"))
    assert (many, total) == (1, 90.0)
    master.close()


def test_a_turn_that_writes_a_job_twice_counts_its_last_value_once() -> None:
    """As a turn does that changes the policy: `Turn.take_batch` is called twice."""
    flow, master = Flow(), Master()
    job = master.submit(1)
    ran = job._replace(first_start_time_s=500.0, lost_gpu_s=30.0)
    over = ran._replace(state=JobState.CANCELLED, end_time_s=600.0)
    flow.publish(Batch(jobs=[ran, over, over]), {job.job_id: job}, {}, {}, {})
    assert [many for _, many, _ in count(flow.waits)] == [1]
    assert [many for _, many, _ in count(flow.runs)] == [1]
    assert sum(flow.lost_gpu_s.values()) == 30.0
    master.close()


def test_jobs_that_a_starting_master_loads_count_for_nothing(master: Master) -> None:
    job_id = master.submit(1).job_id
    master.cancel(job_id)
    assert any("dlq_job_run_seconds_count" in name for name in page_of(master.loop.published))
    master.restart()
    assert not any("dlq_job_run_seconds_count" in name for name in page_of(master.loop.published))


def test_lost_work_counts_by_the_end_that_lost_it() -> None:
    flow, master = Flow(), Master()
    job = master.submit(1)
    lost = job._replace(lost_gpu_s=40.0, end_reason=EndReason.NODE_LOST)
    flow.publish(Batch(jobs=[lost]), {job.job_id: job}, {}, {}, {})
    flow.publish(Batch(jobs=[lost._replace(moves=1)]), {job.job_id: lost}, {}, {}, {})
    assert dict(flow.lost_gpu_s) == {"node_lost": 40.0}
    master.close()


def test_a_promise_that_is_late_and_broken_later_counts_once() -> None:
    flow = Flow()
    happened(flow, event("promise_missed"), event("promise_broken", 2))
    happened(flow, event("promise_broken"), event("promise_overrun", 3))
    assert dict(flow.missed) == {"late": 1, "broken": 1, "overrun": 1}


def test_saves_resumes_and_displaced_jobs_are_told_by_events() -> None:
    flow = Flow()
    happened(flow, event("job_saved", save_s=3.0), event("job_saved"))
    happened(flow, event("job_resumed", resume_s=40.0), event("job_displaced", rule="its queue"))
    assert [many for _, many, _ in count(flow.saves)] == [1]
    assert [total for *_, total in count(flow.resumes)] == [40.0]
    assert dict(flow.displaced) == {"its queue": 1}


def test_a_reclaim_lasts_from_the_request_to_the_return() -> None:
    flow = Flow()
    note = FlagNote(NodeFlag.RECLAIMED, "", "ops", 70.0)
    node = Node(NodeId("inf01"), (), flags=frozenset({NodeFlag.RECLAIMED}), notes=(note,))
    back = JournalEvent(kind="server_returned", time_s=100.0, node_id=node.node_id)
    happened(flow, back, nodes={node.node_id: node})
    happened(flow, back)
    assert count(flow.reclaims) == [((), 1, 30.0)]


def test_a_forecast_is_compared_at_each_end_of_its_range() -> None:
    flow = Flow()
    row = Foreseen(JobId(1), 10.0, 50.0, 80.0, float("inf"))
    flow.publish(Batch(changes=put(FORESEEN, [row])), {}, {}, {}, {})
    assert count(flow.forecast_errors) == []
    started = row._replace(started_s=90.0)
    flow.publish(Batch(changes=put(FORESEEN, [started])), {}, {}, {}, {})
    assert [(labels[0][1], total) for labels, _, total in count(flow.forecast_errors)] == [  # type: ignore[index]
        ("likely", 10.0),
        ("p10", 40.0),
    ]


def test_a_rented_machine_costs_when_it_goes() -> None:
    flow = Flow()
    machine = Machine("r1", "cloud", NodeId("c1"), price_per_hour=6.0, asked_s=0.0)
    gone = machine._replace(state=MachineState.AWAY, end_s=1_800.0)
    for known in (machine, gone):
        flow.publish(Batch(changes=put(MACHINES, [gone])), {}, {}, {}, {"r1": known})
    assert dict(flow.costs) == {"cloud": 3.0}
