"""Lent servers, rented machines and what they cost, against schedules worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import NodeFlag
from dlq_simulator.command import simulate
from dlq_simulator.errors import DataError, SimulateError
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup, read_cluster
from dlq_simulator.world.fleet import cost, gpu_seconds
from dlq_simulator.world.loans import LoanStep, lent_at, server_seconds

OWN = NodeGroup(name="own", count=1, gpus=2, gpu_type="V")
FREE = ("save_s=0", "resume_s=0")


def lent(*steps: tuple[float, int], count: int = 2, **more: Any) -> NodeGroup:
    given = tuple(LoanStep(*step) for step in steps)
    return NodeGroup(name="lent", count=count, gpus=2, gpu_type="T", lent=given, **more)


def a_job(name: str, duration: float, submit: float = 0, gpus: int = 2, **more: Any) -> TraceJob:
    return TraceJob(job_id=name, submit_time_s=submit, num_gpus=gpus, duration_s=duration, **more)


def run(
    jobs: list[TraceJob], *groups: NodeGroup, words: tuple[str, ...] = (), policy: str = "fifo"
) -> Result:
    (chosen,) = read_settings([policy], words)
    return replay(Trace.of("t", jobs), ClusterSpec(name="c", groups=groups), chosen)


def times(result: Result) -> list[tuple[float, float, int]]:
    return [(o.start_s, o.finish_s, o.preemptions) for o in result.outcomes]


def test_a_server_joins_when_it_is_lent_and_stays_until_it_is_reclaimed() -> None:
    jobs = [a_job("a", 100), a_job("b", 100), a_job("c", 100, 10)]
    result = run(jobs, OWN, lent((20, 1), (150, 0)))
    assert times(result) == [(0, 100, 0), (20, 120, 0), (100, 200, 0)]
    assert result.metrics.reclaim_preemption_ratio == 0.0


def test_who_is_on_a_reclaimed_server_saves_first_and_goes_on_later() -> None:
    jobs = [a_job("a", 100, gpu_type="V"), a_job("b", 100, any_gpu=True)]
    result = run(jobs, OWN, lent((0, 1), (40, 0)))
    # Stopped at 40 s, it holds the server until 70 s, waits until 100 s, resumes until 130 s.
    second = result.outcomes[1]
    assert times(result)[1] == (0, 100 + 30 + 60, 1)
    assert (second.overhead_s, second.queue_s) == (60, 30)
    assert second.spans == ((0, 70, 2), (100, 190, 2))
    assert result.metrics.reclaim_preemption_ratio == 0.5


def test_who_cannot_save_is_killed_at_once_and_starts_anew() -> None:
    jobs = [a_job("a", 100, gpu_type="V"), a_job("b", 100, any_gpu=True, checkpoint=False)]
    second = run(jobs, OWN, lent((0, 1), (40, 0))).outcomes[1]
    assert second.spans == ((0, 40, 2), (100, 230, 2))
    assert (second.overhead_s, second.queue_s, second.jct_s) == (40 + 30, 60, 230)


def test_a_reclaim_costs_nothing_where_preemption_is_free() -> None:
    jobs = [a_job("a", 100, gpu_type="V"), a_job("b", 100, any_gpu=True, checkpoint=False)]
    result = run(jobs, OWN, lent((0, 1), (40, 0)), words=("preempt=free",))
    assert times(result)[1] == (0, 160, 1)
    assert result.outcomes[1].overhead_s == 0


def test_idle_servers_are_taken_back_first() -> None:
    result = run([a_job("a", 100, gpu_type="T")], OWN, lent((0, 2), (40, 1)))
    assert times(result) == [(0, 100, 0)]


def test_one_reclaim_of_two_servers_preempts_a_job_on_both_once() -> None:
    jobs = [a_job("wide", 100, gpus=4, gpu_type="T")]
    result = run(jobs, OWN, lent((0, 2), (40, 0), (60, 2)), words=FREE)
    assert times(result) == [(0, 120, 1)]
    assert result.metrics.reclaim_preemption_ratio == 1.0


def test_who_ends_at_the_instant_of_the_reclaim_is_not_preempted() -> None:
    assert times(run([a_job("a", 40, gpu_type="T")], OWN, lent((0, 1), (40, 0)))) == [(0, 40, 0)]


@pytest.mark.parametrize("policy", ["chronus", "dlq"])
def test_slots_that_are_planned_for_ever_keep_nobody_from_being_refused(policy: str) -> None:
    due = a_job("t", 100, gpu_type="T", kind="strict", deadline_s=2000)
    jobs = [due, a_job("behind", 10, 50, gpu_type="V")]
    result = run(jobs, OWN, lent((0, 1), (40, 0)), policy=policy)
    assert [outcome.job.job_id for outcome in result.outcomes] == ["behind"]
    assert "not lent again" in result.notes[0]


def test_who_waits_for_servers_that_never_come_back_is_refused_in_the_end() -> None:
    jobs = [a_job("t", 100, gpu_type="T"), a_job("behind", 10, 50, gpu_type="V")]
    result = run(jobs, OWN, lent((0, 1), (40, 0)))
    assert [outcome.job.job_id for outcome in result.outcomes] == ["behind"]
    assert result.metrics.refused == 1
    assert "not lent again" in result.notes[0]


def test_a_lent_server_is_flagged_while_it_is_lent() -> None:
    seen: dict[float, bool] = {}

    def watch(cluster: Cluster, _: object, now_s: float) -> None:
        seen[now_s] = NodeFlag.LOANED in cluster.nodes[NodeId("lent-1")].flags

    (chosen,) = read_settings(["fifo"], [])
    spec = ClusterSpec(name="c", groups=(OWN, lent((20, 1), (150, 0), count=1)))
    replay(Trace.of("t", [a_job("a", 200)]), spec, chosen, watch=watch)
    assert seen == {0: False, 20: True, 150: False, 200: False}


def test_the_share_of_use_counts_lent_gpus_while_they_are_lent() -> None:
    jobs = [a_job("a", 100, gpu_type="V"), a_job("b", 50, gpu_type="T")]
    result = run(jobs, OWN, lent((0, 1), (50, 0)))
    assert result.metrics.gpu_utilization == 1.0


@pytest.mark.parametrize("policy", ["fifo", "best-effort", "srtf", "tiresias-las"])
def test_nothing_is_left_on_a_reclaimed_server(policy: str) -> None:
    """Two reclaims of everything, under every way to take GPUs away; the work is all done."""

    def watch(cluster: Cluster, _: object, now_s: float) -> None:
        if 230 <= now_s < 500 or now_s >= 730:  # 30 s after each
            assert not any(cluster.attempts_on(node_id) for node_id in ids)

    ids = [NodeId(node_id) for node_id in lent((0, 2)).each_node()]
    steps = ((0, 2), (200, 0), (500, 2), (700, 0))
    jobs = [
        a_job(str(n), 60 + 37 * n, 11 * n, gpus=1 + n % 2, checkpoint=bool(n % 3))
        for n in range(12)
    ]
    (chosen,) = read_settings([policy], [])
    spec = ClusterSpec(name="c", groups=(OWN, lent(*steps)))
    result = replay(Trace.of("t", jobs), spec, chosen, watch=watch)
    assert result.metrics.jobs == 12
    for outcome in result.outcomes:
        assert outcome.jct_s == pytest.approx(
            outcome.queue_s + outcome.overhead_s + outcome.job.duration_s
        )
        assert outcome.queue_s >= 0


def test_turns_that_are_too_short_for_jobs_that_cannot_save_are_an_error() -> None:
    jobs = [a_job(name, 1000, checkpoint=False) for name in "ab"]
    with pytest.raises(SimulateError, match="'a' cannot save") as caught:
        run(jobs, OWN, policy="timeslice")
    assert "would not end" in str(caught.value)


def test_a_rented_machine_takes_work_once_it_has_booted() -> None:
    rented = NodeGroup(count=1, gpus=2, boot_s=120, price_per_hour=3.6, minimum_billing_s=3600)
    result = run([a_job("a", 100, 10), a_job("b", 100, 10)], rented)
    assert times(result) == [(130, 230, 0), (230, 330, 0)]
    assert result.metrics.cost == 3.6


def test_cost_is_node_hours_times_price_of_all_that_is_there() -> None:
    groups = (
        NodeGroup(name="a", count=2, gpus=8, price_per_hour=10),
        NodeGroup(name="b", count=5, gpus=8),
        lent((0, 1), (3600, 2), (9000, 0), price_per_hour=2),
    )
    spec = ClusterSpec(name="c", groups=groups)
    assert cost(spec, 0, 7200) == 2 * 2 * 10 + (1 + 2) * 2
    assert cost(spec, 1800, 3600) == 10 + 0.5 * 2
    assert cost(ClusterSpec(name="c", groups=groups[1:2]), 0, 7200) is None
    assert gpu_seconds(spec, 0, 10800) == 7 * 8 * 10800 + 2 * (3600 + 2 * 5400)


def test_lent_servers_over_time() -> None:
    steps = (LoanStep(10, 3), LoanStep(20, 1))
    assert [lent_at(steps, at_s) for at_s in (0, 10, 19, 20, 99)] == [0, 3, 3, 1, 1]
    assert server_seconds(steps, 0, 30) == 30 + 10
    assert server_seconds(steps, 15, 18) == 9
    assert server_seconds(steps, 0, 5) == 0


def test_a_job_gets_only_gpus_with_the_memory_that_it_asks_for() -> None:
    small = NodeGroup(name="s", count=1, gpus=2, gpu_type="S", memory_bytes=16 * 2**30)
    large = NodeGroup(name="l", count=1, gpus=2, gpu_type="L", memory_bytes=40 * 2**30)
    jobs = [
        a_job("fits", 100, mem_gb=16),
        a_job("large", 100, 1, mem_gb=24),
        a_job("again", 100, 2, mem_gb=24),
        a_job("never", 100, 3, mem_gb=41),
        a_job("type", 100, 3, mem_gb=24, gpu_type="S"),
    ]
    result = run(jobs, small, large, policy="best-effort")
    assert result.metrics.refused == 2
    starts = {outcome.job.job_id: outcome.start_s for outcome in result.outcomes}
    # The first takes either type; the others only the large one, one after the other.
    assert starts["fits"] == 0
    assert starts["again"] - starts["large"] == 100


def write(tmp_path: Path, text: str, load: str = "time_s,busy\n0,0.3\n300,0.9\n600,0.9\n") -> str:
    (tmp_path / "load.csv").write_text(load)
    path = tmp_path / "c.toml"
    path.write_text(text)
    return str(path)


LOANS = '[[loans]]\ncount=10\ngpus=8\ngpu_type="T4"\n'
RENTED = '[[catalogue]]\nname="NC24"\ngpus=4\ngpu_type="K80"\nprice_per_hour=2.25\n'


def test_a_file_says_who_lends_and_what_is_rented(tmp_path: Path) -> None:
    text = LOANS + 'trace="load.csv"\nheadroom=0\n' + RENTED + "at_most=10\ncount=3\nboot_s=90\n"
    lends, rents = read_cluster(write(tmp_path, text)).groups
    assert lends.lent == ((0, 7), (300, 1))
    assert (rents.name, rents.count, rents.boot_s, rents.price_per_hour) == ("NC24", 3, 90, 2.25)


def test_rows_are_steps_and_headroom_stays_with_the_lender(tmp_path: Path) -> None:
    spec = read_cluster(write(tmp_path, LOANS + "rows=[[0, 3], [60, 3], [120.5, 0]]\n"))
    assert spec.groups[0].lent == ((0, 3), (120.5, 0))
    default = read_cluster(write(tmp_path, LOANS + 'trace="load.csv"\n'))
    assert default.groups[0].lent == ((0, 6), (300, 0))


def test_an_inference_load_of_the_generator_lends(tmp_path: Path) -> None:
    load = tmp_path / "load.csv"
    made = CliRunner().invoke(simulate, ["generate", "inference", "--days", "1", "-o", str(load)])
    assert made.exit_code == 0, made.output
    spec = read_cluster(write(tmp_path, LOANS + 'trace="load.csv"\n', load.read_text()))
    steps = spec.groups[0].lent or ()
    assert max(step.servers for step in steps) >= 5
    assert min(step.servers for step in steps) == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LOANS, "it wants rows or trace, one of them"),
        (LOANS + 'rows=[[0,1]]\ntrace="load.csv"', "it wants rows or trace, one of them"),
        (LOANS + "rows=[]", "rows is not a list of rows"),
        (LOANS + "rows=[[0,1]]\nheadroom=0.1", "headroom goes with a trace"),
        (LOANS + "rows=[[0,1]]\nsettle_s=60", "settle_s goes with a trace"),
        (LOANS + "rows=[[0,1],[5]]", "row 2; it is not [seconds, servers]"),
        (LOANS + "rows=[[0,11]]", "11 is not a number of servers from 0 to 10"),
        (LOANS + "rows=[[0,1.5]]", "1.5 is not a number of servers from 0 to 10"),
        (LOANS + "rows=[[5,1],[5,2]]", "its time is not after the one before"),
        (LOANS + "rows=[[-5,1]]", "its time is not after the one before"),
        (LOANS + "trace=3", "trace is not a path"),
        (LOANS + 'trace="load.csv"\nheadroom=1.0', "headroom is not from 0 to below 1"),
        (RENTED + "at_most=2\ncount=3", "count is 3 and at_most 2"),
        (RENTED + "boot_s=-1", "boot_s is not a number of 0 or more"),
        (RENTED + "count=-1", "count is not a whole number of 0 or more"),
        (RENTED + "boots=1", "unknown key 'boots'; did you mean 'boot_s'?"),
        ('[[catalogue]]\ngpus=4\nname="a"', "price_per_hour is missing"),
        ("[[catalogue]]\ngpus=4\nprice_per_hour=1", "name is not a word"),
        ("[[nodes]]\ncount=1\ngpus=1\nspeed=0", "speed is not a number above 0"),
        ("[[nodes]]\ncount=1\ngpus=1\nspeed=nan", "speed is not a number"),
        ("[[nodes]]\ncount=1\ngpus=1\nprice_per_hour=inf", "price_per_hour is not a number"),
        ("[[nodes]]\ncount=1\ngpus=1\nboot_s=3", "unknown key 'boot_s'"),
        (RENTED, "it has 0 nodes"),
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(Exception, match="cannot") as caught:
        read_cluster(write(tmp_path, text))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("load", "why"),
    [
        ("", "line 1; the header is not time_s,busy"),
        ("a,b\n0,0.3\n", "line 1; the header is not time_s,busy"),
        ("time_s,busy\n", "it has a header and no rows"),
        ("time_s,busy\n0,1.3\n", "line 2, column busy; expected a number from 0 to 1, found '1.3'"),
        ("time_s,busy\n0,nan\n", "line 2, column busy; expected a number"),
        ("time_s,busy\n-1,0.3\n", "line 2, column time_s; expected 0 or more"),
        ("time_s,busy\n0\n", "line 2; the row has 1 cells and the header 2"),
        ("time_s,busy\n5,0.3\n5,0.4\n", "line 3; its time is not after the one before"),
    ],
)
def test_a_bad_load_names_line_and_column(tmp_path: Path, load: str, why: str) -> None:
    with pytest.raises(DataError) as caught:
        read_cluster(write(tmp_path, LOANS + 'trace="load.csv"', load))
    assert why in str(caught.value)


def test_a_reclaim_that_needs_a_solver_is_refused_before_the_replay_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_simulator.command.find_spec", lambda _name: None)
    path = write(tmp_path, LOANS + "rows=[[0, 3]]\n")
    (tmp_path / "t.csv").write_text("job_id,submit_time_s,num_gpus,duration_s\na,0,1,10\n")
    typed = [str(tmp_path / "t.csv"), "--cluster", path, "--policy", "fifo"]
    refused = CliRunner().invoke(simulate, typed)
    assert refused.exit_code == 2
    assert "--set reclaim=aryl" in refused.stderr
    assert CliRunner().invoke(simulate, [*typed, "--set", "reclaim=aryl"]).exit_code == 0


def test_with_patience_servers_are_lent_later_and_reclaimed_at_once(tmp_path: Path) -> None:
    load = "time_s,busy\n0,0.5\n300,0.4\n600,0.4\n900,0.9\n1200,0.2\n"
    text = LOANS + 'trace="load.csv"\nheadroom=0\nsettle_s=600\n'
    (group,) = read_cluster(write(tmp_path, text, load)).groups
    assert group.lent == (LoanStep(0, 0), LoanStep(600, 5), LoanStep(900, 1))


def test_a_job_that_may_halve_its_batch_fits_where_half_of_its_memory_is() -> None:
    small = NodeGroup(name="s", count=1, gpus=2, gpu_type="S", memory_bytes=16 * 2**30)
    jobs = [
        a_job("half", 100, mem_gb=32, halves_batch=True),
        a_job("whole", 100, mem_gb=32, halves_batch=False),
        a_job("more", 100, mem_gb=33, halves_batch=True),
    ]
    result = run(jobs, small, policy="best-effort")
    assert [outcome.job.job_id for outcome in result.outcomes] == ["half"]
    assert result.outcomes[0].jct_s == 100
    assert result.metrics.refused == 2


@pytest.mark.parametrize("place", ["groups", "consolidate"])
def test_a_mixed_job_lies_on_several_types_last_and_gets_seven_tenths_of_what_they_could_do(
    place: str,
) -> None:
    """2 GPUs of speed 1 and 2 of 0.5: 0.7 x 0.75. The job behind it fits on one type, and goes
    first.
    """
    own = NodeGroup(name="own", count=2, gpus=2, gpu_type="V")
    slow = NodeGroup(name="slow", count=1, gpus=2, gpu_type="T", speed=0.5)
    jobs = [a_job("wide", 525, gpus=4, mixed=True), a_job("small", 10, gpus=2, gpu_type="V")]
    wide, small = run(jobs, own, slow, words=(f"place={place}",), policy="best-effort").outcomes
    assert wide.spans == ((0, 525, 4),), "one type would do, and is tried first"
    jobs = [a_job("small", 10, gpus=2, gpu_type="V"), a_job("wide", 525, gpus=4, mixed=True)]
    small, wide = run(jobs, own, slow, words=(f"place={place}",), policy="best-effort").outcomes
    assert small.start_s == wide.start_s == 0
    assert wide.jct_s == pytest.approx(525 / (0.7 * 0.75))
    ideal = run(jobs, own, slow, words=(f"place={place}", "mixed=1"), policy="best-effort")
    assert ideal.outcomes[1].jct_s == pytest.approx(525 / 0.75)
    rigid = [a_job("small", 10, gpus=2, gpu_type="V"), a_job("wide", 525, gpus=4)]
    later = run(rigid, own, slow, words=(f"place={place}",), policy="best-effort").outcomes[1]
    assert later.spans[0].begin_s == 10, "who is not mixed waits for one type"


def test_a_mixed_job_on_a_reclaimed_server_leaves_all_of_its_gpus() -> None:
    jobs = [a_job("small", 300, gpus=1, gpu_type="V"), a_job("wide", 100, gpus=3, mixed=True)]
    result = run(jobs, OWN, lent((0, 1), (40, 0), (100, 1)), words=("place=groups",), policy="aryl")
    wide = result.outcomes[1]
    assert wide.spans[0] == (0, 70, 3)
    assert wide.preemptions == 1
    assert result.metrics.reclaim_collateral_damage == 0.5
