"""Reservations: nodes that are kept free from an instant on, and take work again by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlq_common.errors import InvalidRequest, NotFound
from dlq_master.control.stimuli import CancelReservation, CreateReservation
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job, RunRules
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.nodes.windows import Window, runs_into
from dlq_master.model.why import ReasonCode
from dlq_master.policy.promise.capacity.grids import grid_of
from dlq_master.store.tables.tenants import Reservation
from support.builders import a_job
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent
from support.validate import validate

Masters = Callable[..., Master]
HOUR_S = 3600.0
SILENT = RunRules(saves=False)  # its spec says nothing of saving


def reserve(
    master: Master, in_s: float | None, for_s: float = HOUR_S, *nodes: str, request_id: str = ""
) -> Reservation:
    now_s = master.clock.now_s()
    begin_s = None if in_s is None else now_s + in_s
    answer: Reservation = master.ask(
        CreateReservation(
            caller=ROOT,
            request_id=request_id,
            node_ids=tuple(map(NodeId, nodes or ("n1",))),
            begin_s=begin_s,
            end_s=now_s + (in_s or 0.0) + for_s,
            reason="fans",
        )
    )
    return answer


def a_master(masters: Masters, policy: str = "dlq", nodes: int = 1) -> tuple[Master, SimAgent]:
    master = masters(config_of(policy))
    agents = [SimAgent(master, NodeId(f"n{n + 1}"), gpus=4) for n in range(nodes)]
    for agent in agents:
        agent.hello()
    return master, agents[0]


def placed(master: Master, job: Job) -> list[NodeId]:
    live = master.job(job.job_id).live_key
    return (
        [] if live is None else list(master.state.cluster.attempts[live].lease.allocation.node_ids)
    )


@pytest.mark.parametrize(
    ("told", "until_s", "off"),
    [
        ({"duration_estimate_s": 600.0}, 1000.0, False),  # it ends before
        ({"duration_estimate_s": 600.0, "keeps_work": False}, 1000.0, False),
        ({"duration_estimate_s": 990.0, "keeps_work": False}, 1000.0, True),  # but for its start
        ({"duration_estimate_s": 9e4}, 1000.0, False),  # it saves, and has a whole term
        ({"duration_estimate_s": 9e4}, 299.0, True),
        ({"duration_estimate_s": 9e4, "promised": 0}, 1000.0, True),  # not one of promises
        ({"duration_estimate_s": 9e4, "keeps_work": False}, 8e4, True),
        ({"keeps_work": False}, 8e4, True),  # nobody knows how long it runs
        ({"keeps_work": False, "time_limit_s": 7e4}, 8e4, False),
        ({"duration_estimate_s": 9e4, "worked_s": 8.99e4}, 200.0, False),
        ({}, -10.0, True),  # it has begun
        ({"rules": SILENT, "time_limit_s": 9e4}, 8e4, True),  # as Slurm has it
        ({"rules": SILENT, "time_limit_s": 9e4, "duration_estimate_s": 60.0}, 8e4, True),
        ({"rules": SILENT, "duration_estimate_s": 9e4}, 8e4, True),
        (
            {"rules": SILENT, "duration_estimate_s": 9e4, "saves": (3.0,)},
            8e4,
            False,
        ),  # it has saved
        ({"rules": SILENT}, 1000.0, False),  # it runs on, and is told
        ({"rules": SILENT}, 200.0, True),
    ],
)
def test_who_is_to_keep_off_a_reserved_node(
    told: dict[str, Any], until_s: float, off: bool
) -> None:
    job = a_job(1, 4)._replace(**told)
    window = Window(1e6, 2e6, "m1")
    assert runs_into(job, [window], 1e6 - until_s, Terms()) is off
    assert not runs_into(job, [window], 2e6, Terms()), "it is over"


def test_nothing_starts_that_would_run_into_it_and_why_says_so(masters: Masters) -> None:
    master, _ = a_master(masters)
    reserve(master, 1000.0)
    long = master.submit(4, run_estimate_s=5000.0)
    assert placed(master, long) == [NodeId("n1")], "it saves, and has some terms"
    master.cancel(long.job_id)
    master, _ = a_master(masters)
    reserve(master, 200.0)
    late, short = master.submit(2, run_estimate_s=5000.0), master.submit(2, run_estimate_s=100.0)
    assert placed(master, late) == []
    assert placed(master, short) == [NodeId("n1")]
    reason = next(it for it in master.why(late.job_id).reasons if it.code is ReasonCode.MAINTENANCE)
    assert reason.detail.startswith("n1 from ")
    assert "(m1)" in reason.detail
    codes = {it.code for it in master.why(late.job_id).reasons}
    assert ReasonCode.NODES_CLOSED not in codes, "all nodes are open"


def test_others_are_taken_instead(masters: Masters) -> None:
    master, _ = a_master(masters, nodes=2)
    reserve(master, 200.0)
    assert placed(master, master.submit(4, run_estimate_s=5000.0)) == [NodeId("n2")]


def test_at_its_begin_the_node_is_emptied_and_at_its_end_it_takes_work_again(
    masters: Masters,
) -> None:
    master, agent = a_master(masters)
    job = master.submit(4, run_estimate_s=9e4)
    agent.obey()
    for key in list(agent.ranks):
        agent.start(key)
    agent.report()
    reserve(master, 400.0, 12.0)
    master.tick(399.0)
    agent.hello()
    assert master.attempt(job.job_id).state is AttemptState.RUNNING
    master.tick(2.0)
    assert master.node("n1").flags == {NodeFlag.RESERVED}
    assert master.attempt(job.job_id).state is AttemptState.PAUSING
    (shown,) = master.loop.published.reservations()
    assert shown.active
    agent.obey()
    for key in list(agent.ranks):
        agent.exit(key)
    agent.report()
    assert master.job(job.job_id).live_attempt is None
    master.tick(10.0)
    agent.hello()
    master.tick(1.0)
    assert master.node("n1").flags == frozenset()
    assert master.node("n1").windows == ()
    assert placed(master, job) == [NodeId("n1")]
    assert master.loop.published.reservations() == []
    assert {"nodes_reserved", "reservation_ended"} <= set(master.words())
    validate(master.state.cluster)


def told(master: Master, job: Job) -> list[str]:
    events = master.loop.published.events(0, 1_000, job.job_id)
    return [event.cause for event in events if event.kind == "reservation_ahead"]


def test_who_may_run_into_it_is_told_at_its_start_and_when_it_is_made(masters: Masters) -> None:
    master, _ = a_master(masters)
    reserve(master, 1000.0)
    silent = master.submit(1, rules=SILENT)
    assert placed(master, silent)
    (words,) = told(master, silent)
    assert words.startswith("n1 is reserved from ")
    assert words.endswith("Its spec says nothing of saving, and its unsaved work is lost then")
    saves, short = master.submit(1, run_estimate_s=9e4), master.submit(1, run_estimate_s=60.0)
    assert placed(master, saves)
    assert placed(master, short)
    assert [words.partition(": ")[2] for words in told(master, saves)] == [
        "it is asked to save then, and goes on elsewhere"
    ]
    assert told(master, short) == []
    reserve(master, 900.0)
    assert [len(told(master, job)) for job in (silent, saves, short)] == [2, 2, 0]


def test_a_cancelled_one_lets_those_in_who_kept_off(masters: Masters) -> None:
    master, _ = a_master(masters)
    made = reserve(master, 100.0)
    job = master.submit(4, run_estimate_s=5000.0)
    assert placed(master, job) == []
    master.ask(CancelReservation(caller=ROOT, request_id="", reservation_id=made.reservation_id))
    assert placed(master, job) == [NodeId("n1")]
    assert master.state.cluster.jobs[job.job_id].request.avoid == ()


def test_a_job_that_waits_comes_to_run_into_it_as_time_goes(masters: Masters) -> None:
    master, agent = a_master(masters)
    holder = master.submit(4, run_estimate_s=100.0)
    reserve(master, 400.0)
    waits = master.submit(4, run_estimate_s=5000.0)
    assert master.state.cluster.jobs[waits.job_id].request.avoid == ()
    master.tick(99.0)
    assert master.state.cluster.jobs[waits.job_id].request.avoid == ()
    for _ in range(2):
        master.tick(1.0)
        agent.hello()
    assert master.state.cluster.jobs[waits.job_id].request.avoid == (NodeId("n1"),)
    assert placed(master, holder) == [NodeId("n1")]


def test_it_is_known_after_a_restart_and_begins_late_if_it_must(masters: Masters) -> None:
    master, _ = a_master(masters)
    made = reserve(master, 400.0)
    master.clock.advance(500.0)
    master.restart()
    assert list(master.state.reservations.by_id) == [made.reservation_id]
    master.tick(1.0)
    assert NodeFlag.RESERVED in master.node("n1").flags
    master.restart()
    SimAgent(master, NodeId("n1"), gpus=4).hello()
    assert NodeFlag.RESERVED in master.node("n1").flags
    assert reserve(master, 9000.0).reservation_id == "m2"


def test_the_number_of_one_that_was_cancelled_after_a_restart_is_not_given_again(
    masters: Masters,
) -> None:
    master, _ = a_master(masters)
    made = [reserve(master, at_s, 10.0).reservation_id for at_s in (100.0, 200.0)]
    master.restart()
    master.ask(CancelReservation(caller=ROOT, request_id="", reservation_id=made[-1]))
    assert reserve(master, 300.0).reservation_id not in made


def test_two_that_overlap_keep_the_node_until_both_are_over(masters: Masters) -> None:
    master, _ = a_master(masters)
    first = reserve(master, None, 100.0)
    reserve(master, None, 200.0)
    assert first.active
    master.tick(150.0)
    assert NodeFlag.RESERVED in master.node("n1").flags
    master.tick(100.0)
    assert master.node("n1").flags == frozenset()


def test_the_same_request_again_makes_no_second_one(masters: Masters) -> None:
    master, _ = a_master(masters)
    first = reserve(master, 500.0, request_id="r1")
    assert reserve(master, 500.0, request_id="r1") == first
    assert len(master.state.reservations.by_id) == 1


def test_deadlines_are_promised_without_reserved_nodes_in_its_slots_alone(
    masters: Masters,
) -> None:
    master, _ = a_master(masters, nodes=3)
    cluster, rules = master.state.cluster, master.state.policy.promises
    assert rules is not None
    slot_s = cluster.terms.slo_term_s
    origin = int(master.clock.now_s() // slot_s) + 1
    whole = grid_of(cluster, cluster.own.home, rules, origin).at(0)
    begin_s = (origin + 2) * slot_s + 5.0 - master.clock.now_s()
    reserve(master, begin_s, slot_s)
    grid = grid_of(cluster, cluster.own.home, rules, origin)
    lost = [whole - grid.at(slot) for slot in range(6)]
    assert lost == [0, 0, 4, 4, 0, 0], "it meets two slots"
    assert grid_of(cluster, cluster.own.home, rules, origin + 3).capacity == (whole - 4, whole)


@pytest.mark.parametrize(
    ("begin_s", "end_s", "field"),
    [
        (-60.0, 60.0, "begin_time"),
        (60.0, 30.0, "end_time"),
        (31 * 86_400.0, 32 * 86_400.0, "begin_time"),
        (60.0, 31 * 86_400.0, "end_time"),
    ],
)
def test_times_that_make_no_sense_are_refused_by_name(
    masters: Masters, begin_s: float, end_s: float, field: str
) -> None:
    master, _ = a_master(masters)
    with pytest.raises(InvalidRequest) as refused:
        reserve(master, begin_s, end_s - begin_s)
    assert refused.value.field == field


def test_a_node_that_is_not_there_is_refused(masters: Masters) -> None:
    master, _ = a_master(masters)
    with pytest.raises(NotFound, match="no node n9"):
        reserve(master, 60.0, HOUR_S, "n9")
