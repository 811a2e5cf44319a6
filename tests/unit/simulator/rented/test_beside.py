"""Renting beside own nodes, against schedules worked out by hand: instants, and bills."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.nodes.node import NodePool
from dlq_simulator.command import simulate
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup, RentingSpec

OWN = NodeGroup(name="own", count=1, gpus=4, gpu_type="H100")
SPOT = NodeGroup(
    name="spot", count=0, gpus=4, gpu_type="H100", price_per_hour=36.0, boot_s=100, at_most=2
)
BUSY = TraceJob(job_id="busy", submit_time_s=0, num_gpus=4, duration_s=10_000)


def late(
    name: str = "late",
    submit: float = 10,
    *,
    gpus: int = 4,
    lasts: float = 1000,
    due: float = 2000,
    weight: float = 1.0,
    **more: Any,
) -> TraceJob:
    """It would wait for 10,000 s; each second after `due` costs `weight`, and each of a machine
    0.01.
    """
    return TraceJob(
        job_id=name,
        submit_time_s=submit,
        num_gpus=gpus,
        duration_s=lasts,
        due_s=due,
        weight=weight,
        **more,
    )


def ran(
    *jobs: TraceJob,
    spot: NodeGroup = SPOT,
    policy: str = "srtf",
    words: tuple[str, ...] = ("preempt=free", "know=known"),
    watch: Any = None,
    **renting: Any,
) -> Replay:
    """On one own node, and machines of a pool. `srtf` is told how long jobs run; nobody is stopped
    for who is longer.
    """
    (chosen,) = read_settings([policy], words)
    spec = ClusterSpec(name="c", groups=(OWN,), catalogue=(spot,), renting=RentingSpec(**renting))
    run = Replay(Trace.of("t", jobs), spec, chosen, watch=watch)
    run.run()
    return run


def held(run: Replay) -> dict[str, tuple[float, float]]:
    return {one.job.job_id: (one.start_s, one.finish_s) for one in run.outcomes.values()}


def rented(run: Replay) -> list[tuple[float, float | None, float | None]]:
    """When each machine was asked for, came and went."""
    assert run.beside is not None
    every = run.beside.machines.every.values()
    return [(one.asked_s, one.up_s, one.end_s) for one in every]


FIXED: dict[str, Any] = {"policy": "best-effort", "words": ("preempt=free",)}


def test_a_machine_is_asked_for_boots_and_goes_with_the_last_job() -> None:
    """Nobody says how long `busy` runs: an hour is taken, and the second is late by 2610 s from the
    start.
    """
    run = ran(BUSY, late(), **FIXED)
    assert rented(run) == [(10, 110, 1110)]
    assert held(run)["late"] == (110, 1110)
    billed = run.billed()
    assert billed is not None
    assert billed.cost == pytest.approx(1100 * 0.01)
    assert billed.machine_hours == {"spot": 0.305556}
    assert run.outcome(2).rented_gpu_s == {"spot": 4000}  # type: ignore[arg-type]


def test_nothing_is_rented_where_being_late_costs_less() -> None:
    run = ran(BUSY, late(weight=0.001), **FIXED)
    assert rented(run) == []
    assert held(run)["late"] == (10_000, 11_000)


def test_what_is_paid_is_kept_and_used() -> None:
    """The minimum ends at 3610; 5 s before, nobody is there, and it goes. The third comes while it
    is paid.
    """
    spot = replace(SPOT, minimum_billing_s=3600)
    run = ran(BUSY, late(), late("third", 1500, lasts=500, due=600), spot=spot, **FIXED)
    assert rented(run) == [(10, 110, 3605)]
    assert held(run)["third"] == (1500, 2000)
    assert run.billed().cost == pytest.approx(36.0)  # type: ignore[union-attr]


def test_two_share_a_machine_and_no_more_are_rented_than_may_be() -> None:
    jobs = [late(f"j{n}", 10, gpus=2) for n in range(6)]
    run = ran(BUSY, *jobs, spot=replace(SPOT, at_most=1), **FIXED)
    assert [asked for asked, _, _ in rented(run)][:1] == [10]
    begins = sorted(begin for name, (begin, _) in held(run).items() if name != "busy")
    assert begins == [110, 110, 1110, 1110, 2110, 2110]
    assert len(rented(run)) == 1, "it is kept while somebody comes"


def test_a_budget_is_kept() -> None:
    jobs = [late(f"j{n}", 10) for n in range(2)]
    assert len(rented(ran(BUSY, *jobs, **FIXED))) == 2
    run = ran(BUSY, *jobs, most_per_hour=36.0, **FIXED)
    assert rented(run) == [(10, 110, 2110)]
    assert sorted(held(run).values())[1:] == [(110, 1110), (1110, 2110)]


def test_whoever_needs_more_than_the_own_nodes_have_runs_on_a_machine() -> None:
    wide = late("wide", gpus=8)
    run = ran(BUSY, wide, spot=replace(SPOT, gpus=8), **FIXED)
    assert held(run)["wide"] == (110, 1110)
    run = ran(BUSY, replace(wide, weight=0.0), spot=replace(SPOT, gpus=8), **FIXED)
    assert list(run.refused.values()) == [
        "no own node could hold it, and no machine was worth renting"
    ]


def test_what_its_provider_takes_back_is_left_in_time() -> None:
    """Work that is not done until then is not sent there; who runs there all the same saves
    before.
    """
    run = ran(BUSY, late(), spot=replace(SPOT, until_s=1000), **FIXED)
    assert rented(run) == []
    words = ("save_s=30",)
    long = late(lasts=20_000)  # nobody knows: an hour is taken
    run = ran(BUSY, long, spot=replace(SPOT, until_s=8000), policy="best-effort", words=words)
    ((asked, up, gone),) = rented(run)
    assert (asked, up, gone) == (10, 110, 8000)
    (preempted,) = [one for one in run.outcomes.values() if one.job.job_id == "late"]
    assert preempted.spans[0][:2] == (110, 8000)
    assert preempted.spans[1].begin_s == 10_000


def test_faster_machines_do_the_work_sooner() -> None:
    run = ran(BUSY, late(), spot=replace(SPOT, speed=2), **FIXED)
    assert held(run)["late"] == (110, 610)


def test_promises_stand_on_own_nodes_alone() -> None:
    """Two that fit one after the other, and a third that does not: a machine could hold it, and it
    is promised nothing; a promised job is never on one."""
    seen: set[str] = set()

    def watch(cluster: Cluster, _decided: object, _now_s: object) -> None:
        for key, attempt in cluster.attempts.items():
            (slot,) = attempt.lease.allocation.slots
            if cluster.nodes[slot.node_id].pool is NodePool.PRICED:
                assert cluster.jobs[key.job_id].promised is None
                seen.add(cluster.jobs[key.job_id].name)

    strict: dict[str, Any] = {"kind": "strict", "deadline_s": 5000, "due": 5000}
    jobs = [late(f"j{n}", 10 * n, lasts=2000, weight=5.0, **strict) for n in range(4)]
    run = ran(
        *jobs,
        policy="dlq",
        words=("know=known", "margin=0", "guarantee=fitting", "be_floor=0"),
        watch=watch,
    )
    promised = {one.job.job_id for one in run.outcomes.values() if one.promised_s is not None}
    assert promised
    assert seen
    assert not seen & promised


SIZES: dict[str, Any] = {"min_workers": 1, "max_workers": 4, "gpus_per_worker": 1}
SIZED: dict[str, Any] = {"policy": "afs", "words": ("preempt=free", "know=known")}


def test_who_crawls_goes_on_on_a_machine_when_that_has_booted() -> None:
    """By then it has done a fortieth of its work; what it leaves is there for the next."""
    three, one = (
        replace(BUSY, num_gpus=3),
        replace(BUSY, job_id="one", submit_time_s=50, num_gpus=1),
    )
    run = ran(three, late(due=1200, **SIZES), one, **SIZED)
    assert rented(run) == [(10, 110, 1085)]
    assert held(run)["late"] == (10, 1085)
    assert held(run)["one"][0] == 110


def test_who_is_soon_done_where_it_crawls_is_left_there() -> None:
    """Late for less than a machine costs; or the others are done in 20 s, and all is there for
    it.
    """
    three = replace(BUSY, num_gpus=3)
    assert rented(ran(three, late(weight=0.001, **SIZES), **SIZED)) == []
    assert rented(ran(replace(three, duration_s=30), late(**SIZES), **SIZED)) == []


@given(
    jobs=st.lists(
        st.builds(
            late,
            st.uuids().map(str),
            st.integers(0, 3000),
            gpus=st.sampled_from([1, 2, 4]),
            lasts=st.integers(1, 3000),
            due=st.integers(1, 5000),
            weight=st.sampled_from([0.0, 0.01, 1.0]),
            min_workers=st.sampled_from([None, 1]),
        ),
        min_size=1,
        max_size=8,
    ),
    minimum=st.sampled_from([0, 1000]),
    until=st.sampled_from([inf, 4000.0]),
    words=st.sampled_from([dict[str, Any](), SIZED, {**SIZED, "words": ("know=known",)}]),
)
def test_whatever_comes_machines_come_and_go_and_all_jobs_end(
    jobs: list[TraceJob], minimum: int, until: float, words: dict[str, Any]
) -> None:
    jobs = [replace(job, num_gpus=4, **SIZES) if job.min_workers else job for job in jobs]
    spot = replace(SPOT, minimum_billing_s=minimum, until_s=until)
    run = ran(BUSY, *jobs, spot=spot, **words)
    assert len(run.outcomes) == len(jobs) + 1
    assert run.beside is not None
    there = run.beside.machines.every.values()
    for one in there:
        assert one.up_s is None or one.up_s >= one.asked_s + SPOT.boot_s
        assert one.end_s is None or one.end_s <= until
        if one.end_s is not None:  # what is paid is kept, unless it is taken
            assert one.end_s >= min(one.asked_s + minimum - 5, until)
    again = ran(BUSY, *jobs, spot=spot, **words)
    assert (held(again), rented(again)) == (held(run), rented(run))


CLUSTER = """
[[nodes]]
name = "own"
count = 1
gpus = 4
gpu_type = "H100"

[[catalogue]]
name = "spot"
gpus = 4
gpu_type = "H100"
price_per_hour = 36.0
boot_s = 100
at_most = 2

[renting]
policy = "gpuaas-greedy"
"""
ROWS = "job_id,submit_time_s,num_gpus,duration_s,due_s,weight\nbusy,0,4,10000,,\nlate,10,4,1000,2000,1\n"  # noqa: E501


def told(tmp_path: Path, cluster: str, *more: str) -> tuple[int, str, str]:
    (tmp_path / "c.toml").write_text(cluster)
    (tmp_path / "t.csv").write_text(ROWS)
    words = [
        str(tmp_path / "t.csv"),
        "--cluster",
        str(tmp_path / "c.toml"),
        "--policy",
        "best-effort",
    ]
    result = CliRunner().invoke(simulate, [*words, *more])
    return result.exit_code, result.stdout, result.stderr


def test_money_stands_in_the_table_the_document_and_the_rows_of_jobs(tmp_path: Path) -> None:
    out = tmp_path / "o.csv"
    code, table, _ = told(tmp_path, CLUSTER, "--jobs-out", str(out))
    assert code == 0
    assert table.splitlines()[0].split()[-5:] == ["COST", "TARDINESS", "COST", "MACHINE", "HOURS"]
    assert table.splitlines()[1].split()[-3:] == ["11.00", "0.00", "spot:0.3"]
    assert out.read_text().splitlines()[0].endswith(",gpus,tardiness_cost,rented_gpu_s")
    assert out.read_text().splitlines()[2] == "late,10,110,1110,0,4,0,spot:4000"
    _, document, _ = told(tmp_path, CLUSTER, "--json")
    assert '"cost": 11.0' in document
    assert '"spot": 0.305556' in document


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ('policy = "gpuaas-gredy"', "there is no priced policy"),
        ("most_per_hour = -1", "most_per_hour is not a number of 0 or more"),
        ("most_per_week = 1", "unknown key 'most_per_week'"),
        ('settings = { iterations = "5" }', "policy dlq has no setting 'iterations'"),
        ("settings = 3", "settings are words"),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, wrong: str, words: str) -> None:
    code, _, stderr = told(tmp_path, CLUSTER.replace('policy = "gpuaas-greedy"', wrong))
    assert code == 1
    assert words in stderr


def test_machines_of_all_the_time_are_none_of_need(tmp_path: Path) -> None:
    code, _, stderr = told(tmp_path, CLUSTER.replace("at_most = 2", "at_most = 2\ncount = 1"))
    assert code == 1
    assert "leave count out" in stderr
