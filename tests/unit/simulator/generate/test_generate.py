"""The papers' workloads: their stated statistics, and the same bytes for the same seed."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from random import Random
from statistics import fmean

import pytest
from click.testing import CliRunner, Result

from dlq_simulator.command import simulate
from dlq_simulator.generate.aryl import Aryl, Diurnal
from dlq_simulator.generate.chronus import MIXES, Chronus
from dlq_simulator.generate.command import write_trace
from dlq_simulator.generate.gpuaas import RATES, GpuAsAService
from dlq_simulator.generate.tiresias import Tiresias
from dlq_simulator.traces import parse_trace, read_trace
from dlq_simulator.workload import Trace

OWN = Path(__file__).parents[3] / "data" / "traces" / "own_480_job.csv"


@pytest.fixture(scope="module")
def own() -> Trace:
    return read_trace(str(OWN))


def test_tiresias_has_the_jobs_of_section_5_1() -> None:
    jobs = Tiresias().workload(Random(1)).jobs
    assert Counter(job.num_gpus for job in jobs) == {1: 240, 2: 40, 4: 80, 8: 90, 16: 25, 32: 5}
    assert set(Counter(job.model for job in jobs).values()) == {48}
    assert all(120 <= job.duration_s <= 7200 for job in jobs)
    assert all(job.ps == (job.num_gpus if job.num_gpus > 1 else 0) for job in jobs)


def test_tiresias_arrivals_are_thirty_seconds_apart_on_average() -> None:
    jobs = Tiresias(jobs=20_000).workload(Random(1)).jobs
    assert jobs[-1].submit_time_s / 19_999 == pytest.approx(30, rel=0.03)


def test_more_jobs_keep_the_proportions_of_the_widths() -> None:
    widths = Counter(job.num_gpus for job in Tiresias(jobs=4800).workload(Random(1)).jobs)
    assert widths == {1: 2400, 2: 400, 4: 800, 8: 900, 16: 250, 32: 50}


@pytest.mark.parametrize("name", MIXES)
def test_chronus_deals_out_the_kinds_of_its_table_1(name: str, own: Trace) -> None:
    kinds = Counter(job.kind for job in Chronus(mix=MIXES[name]).workload(Random(2), own).jobs)
    strict, soft, best_effort = (480 * share // 100 for share in MIXES[name])
    assert kinds == Counter({"strict": strict, "soft": soft, "be": best_effort})


def test_chronus_deadlines_are_uniform_between_1_2_and_2_run_times(own: Trace) -> None:
    jobs = Chronus(mix=MIXES["slo"]).workload(Random(2), own).jobs
    slack = [job.deadline_s / job.duration_s for job in jobs if job.deadline_s]
    assert len(slack) == 480
    assert all(1.1999 <= times <= 2.0001 for times in slack)
    assert fmean(slack) == pytest.approx(1.6, abs=0.04)


def test_chronus_soft_deadlines_step_down_from_the_first(own: Trace) -> None:
    jobs = Chronus().workload(Random(2), own).jobs
    job = next(job for job in jobs if job.kind == "soft")
    assert job.deadline_s is not None
    times = [delay / job.deadline_s for delay, _ in job.soft_steps]
    assert times == pytest.approx([1.0, 1.1, 1.2, 1.5], abs=1e-4)
    assert [reward for _, reward in job.soft_steps] == [100, 80, 50, 20]


@pytest.mark.parametrize("density", [80, 100, 120, 160])
def test_chronus_thins_and_thickens_a_trace_to_its_density(density: int, own: Trace) -> None:
    trace = Chronus(density=density).workload(Random(3), own)
    assert len(trace.jobs) == 480 * density // 100
    assert len({job.job_id for job in trace.jobs}) == len(trace.jobs)
    submits = {job.submit_time_s for job in own.jobs}
    assert all(job.submit_time_s in submits for job in trace.jobs)


def test_aryl_gives_its_shares_and_the_widest_jobs_are_elastic(own: Trace) -> None:
    jobs = Aryl(elastic=5, checkpointless=20, any_gpu=21).workload(Random(4), own).jobs
    elastic = [job for job in jobs if job.max_workers]
    assert len(elastic) == 24
    assert min(job.num_gpus for job in elastic) >= sorted(job.num_gpus for job in jobs)[-30]
    assert all(job.max_workers == 2 * (job.min_workers or 0) for job in elastic)
    assert sum(not job.checkpoint for job in jobs) == 96
    assert sum(bool(job.any_gpu) for job in jobs) == round(480 * 0.21)


def test_the_inference_load_is_a_days_wave_with_the_papers_peak_trough_and_mean() -> None:
    loads = Diurnal(days=7, noise=0.0).loads(Random(5))
    busy = [load.busy for load in loads]
    assert len(loads) == 7 * 288
    assert max(busy) == pytest.approx(0.95, abs=0.001)
    assert max(busy) / min(busy) == pytest.approx(2.2, abs=0.01)
    assert fmean(busy) == pytest.approx(0.65, abs=0.05)
    assert loads[busy.index(max(busy))].at_s % 86_400 == 22 * 3600


@pytest.mark.parametrize("rate", RATES)
def test_gpuaas_has_ten_jobs_a_node_with_due_dates_and_weights_in_their_ranges(rate: str) -> None:
    made = GpuAsAService(nodes=20, rate=rate)  # type: ignore[arg-type]
    jobs = made.workload(Random(6)).jobs
    assert len(jobs) == 200
    assert all(job.duration_s <= (job.due_s or 0) <= 3.001 * job.duration_s for job in jobs)
    assert all(0.003 <= (job.weight or 0) <= 0.015 for job in jobs)
    gaps = jobs[-1].submit_time_s / sum(made.mean_gap_s(number) for number in range(199))
    assert gaps == pytest.approx(1, abs=0.25)


def test_gpuaas_mean_gaps_are_those_of_the_paper() -> None:
    assert GpuAsAService(nodes=50).mean_gap_s(0) == 1500
    high, low = GpuAsAService(nodes=1000, rate="high"), GpuAsAService(nodes=1000, rate="low")
    assert 3600 / high.mean_gap_s(0) == pytest.approx(135)
    assert low.mean_gap_s(0) == 4 * high.mean_gap_s(0)
    mixed = GpuAsAService(nodes=1000, rate="mixed")
    assert [mixed.mean_gap_s(n) > high.mean_gap_s(n) for n in (0, 9, 10, 19, 20)] == [
        *(False, False, True, True, False)
    ]


def test_a_written_workload_reads_back_as_it_was(own: Trace) -> None:
    for trace in (Chronus().workload(Random(7), own), Aryl().workload(Random(7), own)):
        file = io.StringIO()
        write_trace(file, trace)
        assert parse_trace("t.csv", file.getvalue()).jobs == trace.jobs


def generate(*words: str) -> Result:
    return CliRunner().invoke(simulate, ["generate", *words])


@pytest.mark.parametrize(
    "words",
    [
        ("tiresias",),
        ("chronus", str(OWN), "--mix", "mix1", "--density", "120"),
        ("aryl", str(OWN)),
        ("inference", "--days", "1"),
        ("gpuaas", "--rate", "mixed"),
    ],
    ids=lambda words: words[0],
)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(words: tuple[str, ...]) -> None:
    first, again, other = (generate(*words, "--seed", seed).stdout_bytes for seed in "112")
    assert first == again
    assert first != other


def test_a_generated_trace_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    assert generate("tiresias", "--jobs", "20", "-o", str(path)).exit_code == 0
    replayed = CliRunner().invoke(simulate, [str(path), "--cluster", "15x4", "--policy", "fifo"])
    assert replayed.exit_code == 0, replayed.output


def test_a_workload_of_pollux_is_written_with_its_run_times(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    source = OWN.parent / "pollux" / "workload-1.csv"
    assert generate("pollux", str(source), "-o", str(path)).exit_code == 0
    jobs = parse_trace("t.csv", path.read_text()).jobs
    assert len(jobs) == 160
    assert all(job.tuned and job.min_workers == 1 for job in jobs)


def test_a_base_trace_that_is_not_there_is_a_usage_error() -> None:
    result = generate("chronus", "nowhere.csv")
    assert result.exit_code == 2
    assert "dlq: cannot read the trace 'nowhere.csv'" in result.stderr
