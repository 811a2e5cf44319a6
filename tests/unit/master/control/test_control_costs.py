"""What machines and lateness cost is told exactly, and beside what was foretold, whatever happens
between.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.control.stimuli.machines import StopMachines
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.usage.accounting import DAY_S
from dlq_master.model.usage.cost import Cost
from support.costs_seen import Witness
from support.extent import times
from support.master_harness import ROOT
from support.rented import HOUR_S, MADE, Site


def of_job(witness: Witness, job_id: int) -> Cost:
    """All that it has cost."""
    found = [cost for account, cost in witness.told().jobs.items() if account.job_id == job_id]
    return sum(found, Cost())


def lives(witness: Witness, seconds: float = 1.0) -> None:
    """Time passes; agents come, and do what they are told."""
    site = witness.site
    witness.tick(seconds)
    nodes = site.master.state.cluster.nodes
    for machine in site.master.state.machines.open():
        if machine.instance_id and machine.state == "starting" and machine.node_id not in nodes:
            site.boot(machine)
    for host in site.hosts.values():
        if host.node_id in nodes and host.session_id is None:
            host.hello()
        if host.node_id in nodes and host.session_id is not None:
            host.answer()
            for key in list(host.ranks):
                host.start(key)
            host.report()


def test_a_job_is_charged_its_part_and_what_was_foretold_stands_beside_it() -> None:
    """Half of a machine of 10 an hour for half an hour, 20 s after it was asked for."""
    site = Site()
    witness = Witness(site)
    job_id = site.submit(2, due_s=1200.0, lasts_s=1800.0, weight=100.0)
    lives(witness)
    machine = site.only()
    told = of_job(witness, job_id)
    late_s = 1.0 + 20.0 + 1800.0 - 1200.0  # looked at a second after it came
    assert told.foretold_running == pytest.approx(0.5 * 10.0 * 0.5)
    assert told.foretold_late == pytest.approx(100.0 * late_s / HOUR_S)
    assert (told.running, told.late, told.own_late) == (0.0, 0.0, 0.0), "no own node could hold it"
    for _ in range(4):
        lives(witness)
    (host,) = site.hosts.values()
    key = AttemptKey(JobId(job_id), 1)
    assert site.master.attempt(key.job_id).state == "running"
    for _ in range(50):
        lives(witness, 18.0)
    site.restart()
    host.session_id = None
    for _ in range(50):
        lives(witness, 18.0)
    host.exit(key, 0)
    for _ in range(3):
        lives(witness)
    told = of_job(witness, job_id)
    attempt = site.master.store.attempts(JobId(job_id))[0]
    end_s = site.master.job(job_id).end_time_s
    assert end_s is not None
    span_s = end_s + 1.0 - attempt.assigned_time_s  # a second later the master hears of it
    assert told.running == pytest.approx(10.0 * 0.5 * span_s / HOUR_S)
    submit_s = site.master.job(job_id).submit_time_s
    assert told.late == pytest.approx(100.0 * (end_s - submit_s - 1200.0) / HOUR_S)
    witness.judge()
    (paid,) = witness.told().pools.values()
    assert paid.foretold == pytest.approx(machine.foretold) == 10.0 * (20.0 + 1800.0) / HOUR_S


def test_who_is_left_to_the_own_nodes_is_foretold_there() -> None:
    """It waits for an hour behind another, is late by as much as that, and no machine would pay."""
    site = Site(own=4)
    witness = Witness(site)
    site.master.submit(4, run_estimate_s=HOUR_S)
    late = site.submit(4, due_s=HOUR_S, lasts_s=HOUR_S, weight=2.0)
    soon = Site(own=4)
    once = soon.submit(4, due_s=HOUR_S, lasts_s=2 * HOUR_S, weight=2.0)
    for each, job_id in ((site, late), (soon, once)):
        each.tick()
        assert not each.machines()
        told = each.master.job(job_id).foretold
        assert told is not None
        assert (told.pool, told.running) == ("", 0.0)
        assert told.own_late == pytest.approx(2.0, rel=0.01), "the other one runs already"
    site.tick(3600.0 + DAY_S)
    found = {account: cost for account, cost in witness.told().jobs.items() if cost.late}
    assert {account.pool for account in found} == {""}
    assert sum(cost.late for cost in found.values()) == pytest.approx(2.0 * 24.0, rel=0.01)
    assert len(found) == 2, "by day"


def test_what_was_foretold_first_stands() -> None:
    site = Site()
    job_id = site.submit()
    site.tick()
    first = site.master.job(job_id).foretold
    assert first is not None and first.pool == "spot"  # noqa: PT018 - for mypy
    site.tick()
    site.boot()
    site.tick(15.0)
    site.restart()
    site.hosts[site.only().node_id].hello()
    site.tick()
    assert site.master.job(job_id).foretold == first


ACTS = ("live", "live", "live", "submit", "narrow", "exit", "die", "restart", "stop", "vanish")


@settings(max_examples=times(10, 60))
@given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(1, 40)), max_size=30))
def test_jobs_boot_and_idle_are_all_that_machines_cost_whatever_happens(
    acts: list[tuple[str, int]],
) -> None:
    site = Site()
    site.master.clock.advance(DAY_S - site.master.clock.now_s() % DAY_S - 60.0)  # before midnight
    witness = Witness(site)
    for number, (act, seconds) in enumerate((("submit", 1), ("live", 1), ("live", 1), *acts)):
        hosts = [host for host in site.hosts.values() if host.ranks]
        match act:
            case "submit":
                site.submit(request_id=f"job-{number}")
            case "narrow":
                site.submit(1, request_id=f"job-{number}")
            case "exit" | "die" if hosts:
                host = hosts[seconds % len(hosts)]
                host.exit(next(iter(host.ranks)), 0 if act == "exit" else 1)
            case "restart":
                site.restart()
                for host in site.hosts.values():
                    host.session_id = None
            case "stop":
                names = tuple(one.request_id for one in site.master.state.machines.open())[:1]
                if names:
                    ask = StopMachines(caller=ROOT, request_id=f"s{number}", machine_ids=names)
                    site.master.ask(ask)
            case "vanish":
                site.provider.there.clear()
        lives(witness, float(seconds))
        witness.judge()
    MADE.pop().close()
