"""Elastic jobs live: they grow into what is free, give it back, and go on from what they have
saved.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq_common.errors import IllegalTransition, InvalidRequest, Unsatisfiable
from dlq_master.control.stimuli import AskedDeadline, Stop, UpdateJob
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import JobState
from dlq_master.model.resources import Request
from support.lent_servers import Server, asked, flags, lend
from support.master_harness import ALICE, Master, config_of
from support.sim_agent import SimAgent

ELASTIC = Request(gpus=2, sizes=(2, 4, 6, 8))


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    return masters(config_of("dlq", cooldown_s="off"))


@pytest.fixture
def nodes(master: Master) -> list[SimAgent]:
    """Two nodes with four GPUs each."""
    agents = [SimAgent(master, NodeId(name)) for name in ("gpu01", "gpu02")]
    for agent in agents:
        agent.hello()
    return agents


def live(
    master: Master,
    nodes: list[SimAgent],
    *,
    until: Callable[[], bool],
    leaves: bool = True,
    most_s: int = 700,
) -> None:
    """Time passes; what is launched runs, and what is told to save does so and leaves, or is at it
    for long.
    """
    for _ in range(most_s // 5):
        if until():
            return
        master.clock.advance(5.0)
        for agent in nodes:
            agent.heartbeat()
        master.tick()
        for agent in nodes:
            agent.obey()
            for key, rank in list(agent.ranks.items()):
                if rank.launch.at_barrier:
                    agent.ready(key)
                agent.start(key)
                if leaves and rank.noticed and rank.alive:
                    agent.save(key, key.number)
                    agent.exit(key, 99)
            agent.report()
    assert until(), master.story()


def width(master: Master, job_id: JobId) -> int:
    """GPUs that it runs on; 0: it does not run."""
    job = master.job(job_id)
    attempt = master.attempt(job_id) if job.live_attempt is not None else None
    return attempt.lease.allocation.width if attempt and attempt.state == "running" else 0


def told(master: Master, kind: str) -> list[dict[str, object]]:
    return [{**it.data, "why": it.cause} for it in master.events() if it.kind == kind]


def test_it_starts_on_all_that_is_free_and_gives_it_back_when_another_waits(
    master: Master, nodes: list[SimAgent]
) -> None:
    job_id = master.submit(request=ELASTIC).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    base = master.attempt(job_id).lease.allocation
    other = master.submit(4).job_id
    live(master, nodes, until=lambda: width(master, other) == 4 and width(master, job_id) == 4)
    again = master.attempt(job_id)
    assert not (again.lease.allocation - base).slots, "what it goes on with it had before"
    assert again.resume_from is not None
    assert master.job(job_id).resizes == 1
    (resized,) = told(master, "job_resized")
    cost_s = resized.pop("cost_s")
    assert resized == {
        "from": 8,
        "to": 4,
        "mode": "restart",
        "why": "others wait for their GPUs",
    }
    assert 0.0 < float(str(cost_s)) < 120.0


def test_it_grows_when_others_have_gone(master: Master, nodes: list[SimAgent]) -> None:
    other = master.submit(4).job_id
    live(master, nodes, until=lambda: width(master, other) == 4)
    job_id = master.submit(request=ELASTIC).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 4)
    before = master.attempt(job_id).lease.allocation
    for agent in nodes:
        if AttemptKey(other, 1) in agent.ranks:
            agent.exit(AttemptKey(other, 1))
            agent.report()
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    after = master.attempt(job_id).lease.allocation
    assert not (before - after).slots, "it keeps what it had"
    (resized,) = told(master, "job_resized")
    assert (resized["from"], resized["to"], resized["why"]) == (4, 8, "GPUs are free")
    launch = next(
        rank.launch for a in nodes for key, rank in a.ranks.items() if key == AttemptKey(job_id, 2)
    )
    assert launch.sizes == (2, 4, 6, 8)


@pytest.mark.parametrize(("cooldown_s", "after_s"), [("off", 300.0), ("600", 900.0)])
def test_nobody_grows_before_it_has_run_for_a_while_on_what_it_has(
    masters: Callable[..., Master], cooldown_s: str, after_s: float
) -> None:
    master = masters(config_of("dlq", cooldown_s=cooldown_s))
    begin_s = master.clock.now_s()
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    other = master.submit(2).job_id
    job_id = master.submit(request=Request(gpus=2, sizes=(2, 4))).job_id
    live(master, [agent], until=lambda: width(master, job_id) == 2)
    agent.exit(AttemptKey(other, 1))
    agent.report()
    live(master, [agent], until=lambda: width(master, job_id) == 4, most_s=1000)
    (assigned,) = [it for it in master.events() if it.cause == "resized"]
    assert 0.0 <= begin_s + after_s - assigned.time_s <= 60.0, "at the boundary"


def test_who_is_told_early_goes_on_until_it_is_just_in_time_to_save(
    master: Master, nodes: list[SimAgent]
) -> None:
    """A resize waits for its boundary as a lapse does."""
    job_id = master.submit(request=ELASTIC).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    for agent in nodes:
        if AttemptKey(job_id, 1) in agent.ranks:
            agent.save(AttemptKey(job_id, 1), 1, save_s=2.0)
            agent.report()
    master.submit(4)
    live(master, nodes, until=lambda: master.attempt(job_id).stop_cause is not None, leaves=False)
    stops = [it for _, it in master.wires.sent[NodeId("gpu01")] if isinstance(it, Stop)]
    assert stops[0].delay_s > 0.0


@pytest.mark.parametrize("when", ["saving", "gone"])
def test_a_master_that_restarts_while_it_is_resized_goes_on_with_it(
    master: Master, nodes: list[SimAgent], when: str
) -> None:
    job_id = master.submit(request=ELASTIC).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    other = master.submit(4).job_id
    live(master, nodes, until=lambda: master.attempt(job_id).regrant is not None, leaves=False)
    if when == "gone":
        for agent in nodes:
            agent.obey()
            agent.save(AttemptKey(job_id, 1), 7)
            agent.exit(AttemptKey(job_id, 1), 99)
    for agent in nodes:
        agent.cut()
    master.restart()
    for agent in nodes:
        agent.hello()
    live(master, nodes, until=lambda: width(master, other) == 4 and width(master, job_id) == 4)
    assert [it["to"] for it in told(master, "job_resized")] == [4]


def test_a_node_that_is_lost_while_it_is_resized_lets_it_start_on_a_size_that_can_be_had(
    master: Master, nodes: list[SimAgent]
) -> None:
    second = nodes[1]
    job_id = master.submit(request=ELASTIC).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    second.cut()
    second.reboot()
    second.hello()
    live(
        master,
        nodes,
        until=lambda: width(master, job_id) in ELASTIC.sizes and master.job(job_id).attempts > 1,
    )
    assert master.job(job_id).state is JobState.QUEUED


def test_a_node_on_which_gpus_are_only_kept_for_it_may_fall_silent(
    master: Master, nodes: list[SimAgent]
) -> None:
    """It runs nowhere near: it saves, and goes on with what can be had."""
    other = master.submit(4).job_id
    live(master, nodes, until=lambda: width(master, other) == 4)
    job_id = master.submit(request=ELASTIC).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 4)
    there = next(it for it in nodes if AttemptKey(other, 1) in it.ranks)
    here = next(it for it in nodes if it is not there)
    there.exit(AttemptKey(other, 1))
    there.report()
    grows = lambda: master.attempt(job_id).regrant is not None  # noqa: E731
    live(master, nodes, until=grows, leaves=False)
    there.cut()
    live(
        master,
        [here],
        until=lambda: master.node(there.node_id).state == "unreachable",
        leaves=False,
    )
    assert master.attempt(job_id).state == "pausing"
    live(master, [here], until=lambda: width(master, job_id) == 4)
    assert master.job(job_id).resizes == 0


def test_who_is_held_while_it_is_resized_does_not_go_on(
    master: Master, nodes: list[SimAgent]
) -> None:
    job_id = master.submit(request=ELASTIC).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    other = master.submit(4).job_id
    live(master, nodes, until=lambda: master.attempt(job_id).regrant is not None, leaves=False)
    master.hold(job_id)
    live(master, nodes, until=lambda: width(master, other) == 4)
    job = master.job(job_id)
    assert (job.state, job.regrant, job.resizing) == (JobState.HELD, None, None)
    assert not told(master, "job_resized")


def test_what_it_holds_on_a_lent_server_it_gives_back_and_goes_on(master: Master) -> None:
    own, lent = SimAgent(master, NodeId("gpu01")), Server(master, NodeId("inf01"))
    agents = [own, lent]
    for agent in agents:
        agent.hello()
    job_id = master.submit(request=Request(gpus=4, sizes=(4, 8))).job_id
    live(master, agents, until=lambda: width(master, job_id) == 4)
    lend(master, "inf01")

    def answered() -> bool:
        lent.answer()
        return width(master, job_id) == 8

    live(master, agents, until=answered)
    master.ask(asked("inf01"))

    def returned() -> bool:
        lent.answer()
        return not flags(master) and width(master, job_id) == 4

    live(master, agents, until=returned, most_s=120)
    assert master.attempt(job_id).lease.allocation.node_ids == ("gpu01",)
    grown, shrunk = told(master, "job_resized")
    assert grown["why"] == "GPUs are free"
    assert shrunk["why"] == "asked back for the inference side: inf01"


def test_a_base_on_a_server_that_is_wanted_back_moves_to_what_it_has_elsewhere(
    master: Master,
) -> None:
    """It began on inf01, and has grown onto gpu01; a job that is not elastic is on inf02, which
    would go first.
    """
    own = SimAgent(master, NodeId("gpu01"))
    servers = [Server(master, NodeId(name)) for name in ("inf01", "inf02")]
    agents: list[SimAgent] = [own, *servers]
    for agent in agents:
        agent.hello()
    first = master.submit(4).job_id
    live(master, agents, until=lambda: width(master, first) == 4)
    lend(master, "inf01")
    servers[0].answer()
    job_id = master.submit(request=Request(gpus=4, sizes=(4, 8))).job_id
    live(master, agents, until=lambda: width(master, job_id) == 4)
    lend(master, "inf02")
    servers[1].answer()
    other = master.submit(4).job_id
    live(master, agents, until=lambda: width(master, other) == 4)
    assert master.attempt(other).lease.allocation.node_ids == ("inf02",)
    own.exit(AttemptKey(first, 1))
    own.report()
    live(master, agents, until=lambda: width(master, job_id) == 8)
    assert set(master.attempt(job_id).lease.allocation.node_ids) == {"gpu01", "inf01"}
    (hit,) = master.ask(asked(count=1)).hits
    assert (hit.job_id, hit.action, hit.kept_gpus) == (job_id, "shrink", 4)

    def returned() -> bool:
        servers[0].answer()
        return not flags(master) and width(master, job_id) == 4

    live(master, agents, until=returned, most_s=120)
    assert master.attempt(job_id).lease.allocation.node_ids == ("gpu01",)
    assert master.job(job_id).resizes == 2
    assert width(master, other) == 4


# --- what people ask for
#   ----------------------------------------------------------------------------


@pytest.mark.usefixtures("nodes")
def test_sizes_that_no_nodes_could_hold_are_refused_with_the_largest_that_could(
    master: Master,
) -> None:
    with pytest.raises(Unsatisfiable) as refused:
        master.submit(request=Request(gpus=2, sizes=(2, 4, 8, 16)))
    assert "on 16 GPUs" in refused.value.what
    assert "could is 8" in refused.value.hint


def update(master: Master, job_id: JobId, sizes: tuple[int, ...]) -> list[tuple[str, str, str]]:
    ask = UpdateJob(caller=ALICE, request_id="", job_id=job_id, expected_version=0, sizes=sizes)
    return [tuple(change) for change in master.ask(ask).changes]


def test_other_sizes_for_a_job_that_runs_are_followed_at_the_next_boundary(
    master: Master, nodes: list[SimAgent]
) -> None:
    job_id = master.submit(request=ELASTIC).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    with pytest.raises(IllegalTransition, match="runs on 8 GPUs"):
        update(master, job_id, (2, 4))
    with pytest.raises(InvalidRequest, match="asks for 2 GPUs"):
        update(master, job_id, (4, 8))
    with pytest.raises(IllegalTransition, match="runs on 8 GPUs"):
        update(master, job_id, ())
    assert update(master, job_id, (2, 8)) == [("elastic", "2:8:2", "2,8")]
    other = master.submit(4).job_id
    live(master, nodes, until=lambda: width(master, other) == 4 and width(master, job_id) == 2)


@pytest.mark.usefixtures("nodes")
def test_a_job_on_several_types_at_once_is_given_no_sizes(master: Master) -> None:
    job_id = master.submit(request=Request(gpus=2, mixed=True), hold=True).job_id
    with pytest.raises(InvalidRequest, match="several GPU types at once"):
        update(master, job_id, (2, 4))


@pytest.mark.usefixtures("nodes")
def test_a_job_with_a_deadline_has_the_base_that_is_promised(master: Master) -> None:
    job_id = master.submit(4, hold=True).job_id
    update(master, job_id, (2, 4))
    assert update(master, job_id, ()) == [("elastic", "2,4", "none")]


def test_with_a_deadline_it_grows_and_leaves_the_slots_of_others_to_them(
    master: Master, nodes: list[SimAgent]
) -> None:
    due = (AskedDeadline(100.0, after_s=30_000.0),)
    job_id = master.submit(request=ELASTIC, run_estimate_s=4000.0, deadlines=due).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    assert master.job(job_id).promised == 0
    due = (AskedDeadline(100.0, after_s=2900.0),)
    other = master.submit(4, run_estimate_s=1000.0, deadlines=due).job_id
    live(master, nodes, until=lambda: width(master, other) == 4, most_s=2400)
    assert [master.job(it).promised for it in (job_id, other)] == [0, 0]
    assert master.job(job_id).displaced == 0, "it only went on with fewer"
    live(master, nodes, until=lambda: width(master, job_id) == 4)
    assert not told(master, "promise_at_risk")
