"""Who crawls on few own GPUs goes on on a machine, where that costs less than being late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from dlq_master.control.loop.turn import Steps, Turn
from dlq_master.control.stimuli import AskedLateness, SetNodeFlags
from dlq_master.control.stimuli.machines import StopMachines
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job_steps import Placed
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.nodes.node_steps import FlagSet
from dlq_master.model.plan import Migrate, Plan
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.rent.stage import RentDecision, RentQuestion, RentsNothing
from support.lent_servers import Server, saves
from support.master_harness import ROOT
from support.rented import HOUR_S, RentedHost, Site


def crawls(*, weight: float = 100.0, policy: str = "dlq") -> tuple[Site, AttemptKey]:
    """Four hours of work of one GPU, due in half an hour, run on one of four GPUs; others have the
    rest.
    """
    site = Site(own=4, policy=policy)
    assert site.own is not None
    other = AttemptKey(site.master.submit(3).job_id, 1)
    late = AskedLateness(weight / HOUR_S, after_s=0.5 * HOUR_S)
    sizes = Request(gpus=1, sizes=(1, 2, 4))
    job = site.master.submit(request=sizes, lateness=late, run_estimate_s=4 * HOUR_S)
    key = AttemptKey(job.job_id, 1)
    own(site).obey()
    for one in (other, key):
        own(site).start(one)
    own(site).report()
    assert site.master.attempt(job.job_id).lease.allocation.node_ids == ("own01",)
    return site, key


def own(site: Site) -> Server:
    assert site.own is not None
    return site.own


def stopped_for_a_machine(site: Site, key: AttemptKey) -> RentedHost:
    """The machine has come, and the job is to leave for it."""
    site.tick()
    assert site.only().jobs == (key.job_id,)
    assert site.master.attempt(key.job_id).stop_cause is None, (
        "it runs on until the machine is there"
    )
    site.tick()
    host = site.boot()
    site.tick()
    site.tick()
    assert site.only().state == "up"
    assert site.master.attempt(key.job_id).stop_cause == "preempt"
    return host


def where(site: Site, job_id: JobId) -> tuple[str, int]:
    (slot,) = site.master.attempt(job_id).lease.allocation.slots
    return slot.node_id, slot.mask.bit_count()


def test_who_crawls_saves_and_goes_on_on_a_machine() -> None:
    site, key = crawls()
    host = stopped_for_a_machine(site, key)
    for _ in range(3):  # it takes its time to save, and the machine is kept for it
        site.tick()
    assert site.only().state == "up"
    next_id = site.master.submit(1).job_id
    saves(own(site), key)
    assert where(site, key.job_id) == (host.node_id, 4)
    site.tick()
    assert where(site, next_id) == ("own01", 1), "what it had is there for others"
    assert site.master.words().count("job_moves") == 1
    again = AttemptKey(key.job_id, 2)
    host.obey()
    host.start(again)
    host.report()
    site.tick(600.0)
    assert len(site.machines()) == 1, "who is on a machine stays"
    host.exit(again, 0)
    host.report()
    site.tick()
    assert site.master.state.cluster.migrations.to(host.node_id) == []
    assert site.only().state == "draining"


@pytest.mark.parametrize("policy", ["dlq", "srtf"])
def test_nobody_moves_for_less_than_it_costs_or_who_is_not_resized(policy: str) -> None:
    site, key = crawls(weight=1.0 if policy == "dlq" else 100.0, policy=policy)
    for _ in range(5):
        site.tick()
    assert site.machines() == {}
    assert site.master.attempt(key.job_id).stop_cause is None


@pytest.mark.parametrize("gone", ["given back", "cancelled", "restarted"])
def test_whatever_comes_between_nobody_is_forgotten(gone: str) -> None:
    site, key = crawls()
    host = stopped_for_a_machine(site, key)
    if gone == "given back":
        ask = StopMachines(caller=ROOT, request_id="s", machine_ids=(site.only().request_id,))
        site.master.ask(ask)
    elif gone == "cancelled":
        site.master.cancel(key.job_id)
    else:
        site.restart()
        own(site).hello()
        host.hello()
    saves(own(site), key)
    site.tick()
    if gone == "cancelled":
        assert site.master.job(key.job_id).state == "cancelled"
    else:
        assert where(site, key.job_id) == ("own01", 1)
    assert site.master.state.cluster.migrations.to(host.node_id) == []


def cordon(site: Site) -> None:
    node_id, closed = site.only().node_id, frozenset([NodeFlag.CORDONED])
    none = frozenset[NodeFlag]()
    site.master.ask(
        SetNodeFlags(
            caller=ROOT,
            request_id="",
            node_id=node_id,
            set_flags=closed,
            clear_flags=none,
            reason="",
        )
    )


def test_nobody_leaves_for_a_machine_that_people_have_closed_and_it_goes_back() -> None:
    site, key = crawls()
    site.tick()
    site.tick()
    site.boot()
    cordon(site)
    site.tick()
    site.tick()
    assert site.master.attempt(key.job_id).stop_cause is None
    assert next(iter(site.machines().values())).state in ("draining", "stopping", "away")


def test_who_has_left_for_a_machine_that_was_closed_meanwhile_goes_on_on_own_nodes() -> None:
    site, key = crawls()
    stopped_for_a_machine(site, key)
    cordon(site)
    saves(own(site), key)
    site.tick()
    assert site.master.attempt(key.job_id).lease.allocation.node_ids == ("own01",)


def test_who_has_failed_on_a_machine_is_not_started_there_and_it_goes_back() -> None:
    site, key = crawls()
    site.tick()
    site.tick()
    host = site.boot()
    cluster = site.master.state.cluster
    job = cluster.jobs[key.job_id]
    cluster.put_job(job._replace(request=replace(job.request, avoid=(host.node_id,))))
    site.tick()
    site.tick()
    assert site.master.attempt(key.job_id).stop_cause is None
    assert next(iter(site.machines().values())).state in ("draining", "stopping", "away")


def test_a_node_keeps_what_happens_to_it_while_a_job_is_started_there() -> None:
    """The start of a job on a machine writes nothing of the machine's node."""
    site, key = crawls()
    host = stopped_for_a_machine(site, key)

    def cordons(turn: Turn, steps: Steps) -> None:
        if any(
            isinstance(one.event, Placed) and one.job_id == key.job_id for one in steps.happened
        ):
            turn.step_node(host.node_id, FlagSet(flag=NodeFlag.CORDONED, reason="a fault"))

    wiring = site.master.loop._wiring
    site.master.loop._wiring = wiring._replace(stepped=(*wiring.stepped, cordons))
    saves(own(site), key)
    assert where(site, key.job_id) == (host.node_id, 4)
    assert site.master.node(host.node_id).flags == {NodeFlag.CORDONED}


class Mistaken(RentsNothing):
    """A stage with a bug: it sends a job to a machine that nobody has rented."""

    def __init__(self, stage: RentsNothing, key: AttemptKey) -> None:
        self._stage, self._key = stage, key

    def decide(self, view: View, asked: RentQuestion) -> RentDecision:
        lost = Migrate(self._key, "nowhere-1", 1, 0.0, Reason(ReasonCode.RENTED))
        return self._stage.decide(view, asked)._replace(plan=Plan((lost,)))


def test_a_refused_plan_moves_no_job_and_leaves_the_rest_of_the_tick_alone() -> None:
    site, key = crawls()
    policy = site.master.state.policy
    object.__setattr__(policy, "rent", Mistaken(policy.rent, key))
    with capture_logs() as logs:
        site.tick()
    told = [line["event"] for line in logs]
    assert "rent_plan_refused" in told
    assert "tick_refused" not in told
    assert "job_moves" not in site.master.words()
    assert site.master.attempt(key.job_id).stop_cause is None
