"""`dlq simulate` at the command line: what it prints, what it writes, how it refuses."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dlq_cli.main import run as run_cli
from dlq_simulator.command import simulate

TRACE = str(Path(__file__).parents[2] / "data" / "traces" / "tiresias_60_job.csv")
SMALL = "job_id,submit_time_s,num_gpus,duration_s\na,0,1,10\nb,0,1,20\n"
WIDE = SMALL + "wide,0,9,5\n"
FIELDS = {
    "policy", "jobs", "refused", "avg_jct_s", "median_jct_s", "p95_jct_s", "avg_queue_s",
    "median_queue_s", "p95_queue_s", "makespan_s", "preemptions", "resizes", "overhead_gpu_s",
    "gpu_utilization", "wdmr", "slo_met_ratio", "be_avg_jct_s", "cost", "tardiness_cost",
    "reclaim_preemption_ratio", "reclaim_collateral_damage", "reclaim_flexible_share",
    "guaranteed",
    "promises_missed", "avg_profiler_pending_s", "max_profiler_pending_s", "ended_in_trial_ratio", "machine_hours", "timing",  # noqa: E501
}  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(simulate, list(arguments))


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.csv"
    path.write_text(SMALL)
    return str(path)


def test_the_cli_finds_the_command_by_its_entry_point() -> None:
    (found,) = entry_points(group="dlq.commands", name="simulate")
    assert found.load() is simulate


def test_json_has_every_field_of_the_contract_for_every_policy() -> None:
    found = document(TRACE, "--cluster", "2x4", "--policy", "fifo", "--policy", "best-effort")
    assert (found["trace"], found["cluster"]) == (TRACE, "2x4")
    assert [entry["policy"] for entry in found["policies"]] == ["fifo", "best-effort"]
    for entry in found["policies"]:
        assert set(entry) == FIELDS
        assert set(entry["timing"]) == {"plan_ms_p50", "plan_ms_p99", "cpu_s", "wall_s"}


def test_what_a_policy_does_not_have_is_null() -> None:
    (entry,) = document(TRACE, "--cluster", "15x4", "--policy", "fifo")["policies"]
    for field in ("wdmr", "slo_met_ratio", "cost", "tardiness_cost", "reclaim_preemption_ratio"):
        assert entry[field] is None


def test_without_json_a_table_compares_the_policies(small: str) -> None:
    result = run(small, "--cluster", "1x1", "--policy", "fifo", "--policy", "best-effort")
    assert result.stdout == (
        "POLICY       JOBS  AVG JCT  MEDIAN   P95  AVG QUEUE  MAKESPAN  PREEMPT     USE\n"
        "fifo            2     20.0    20.0  29.0        5.0      30.0        0  100.0%\n"
        "best-effort     2     20.0    20.0  29.0        5.0      30.0        0  100.0%\n"
    )


@pytest.mark.parametrize(
    ("header", "row", "place", "why"),
    [
        ("job_id,submit_time_s,num_gpus,duration_s", "w,0,9,5", "line 3, column num_gpus",
         "asks for 9 GPUs and the cluster {c} has 6"),
        ("job_id,submit_time,num_gpu,duration", "w,0,9,5", "line 3, column num_gpu", "has 6"),
        ("job_id,submit_time_s,num_gpus,duration_s,gpu_type", "w,0,5,5,A", "line 3, column "
                                                                           "num_gpus",
         "asks for 5 GPUs: no set of the registered nodes has 5 GPUs"),
        ("job_id,submit_time_s,num_gpus,duration_s,gpu_type", "w,0,1,5,C", "line 3, column "
                                                                           "gpu_type",
         "no node has C GPUs (there are: A, B)"),
        ("job_id,submit_time_s,num_gpus,duration_s,mem_gb", "w,0,3,5,40", "line 3, column mem_gb",
         "asks for 3 GPUs with 40 GB each"),
    ],
)  # fmt: skip
def test_a_job_larger_than_the_cluster_is_an_error_at_its_line_and_column(
    tmp_path: Path, header: str, row: str, place: str, why: str
) -> None:
    cluster, trace = tmp_path / "c.toml", tmp_path / "t.csv"
    cluster.write_text(
        '[[nodes]]\nname="a"\ncount=2\ngpus=2\ngpu_type="A"\ngpu_memory_gb=16\n'
        '[[nodes]]\nname="b"\ncount=1\ngpus=2\ngpu_type="B"\n'
    )
    empty = "," * header.count(",")
    trace.write_text(f"{header}\nok,9,1,5{empty[3:]}\n{row}\n")
    result = run(str(trace), "--cluster", str(cluster), "--policy", "fifo")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"dlq: cannot use {trace}, {place}; job 'w' " in result.stderr
    assert why.format(c=cluster) in result.stderr
    skipped = run(str(trace), "--cluster", str(cluster), "--policy", "fifo", "--skip-bad", "--json")
    assert json.loads(skipped.stdout)["policies"][0]["refused"] == 1


def test_jobs_too_large_are_counted_and_named_on_stderr_with_skip_bad(small: str) -> None:
    Path(small).write_text(WIDE)
    result = run(small, "--cluster", "1x1", "--policy", "fifo", "--json", "--skip-bad")
    assert json.loads(result.stdout)["policies"][0]["refused"] == 1
    assert "dlq: note: fifo: refused 1 job; the first, wide:" in result.stderr


def test_ignored_columns_are_noted_on_stderr(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("job_id,submit_time_s,num_gpus,duration_s,colour\n1,0,1,10,red\n")
    result = run(str(trace), "--cluster", "2x4", "--policy", "fifo")
    assert f"dlq: note: {trace}: ignored columns that dlq does not know: colour" in result.stderr


def test_jobs_out_writes_one_row_a_job_in_submit_order(small: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    run(small, "--cluster", "1x1", "--policy", "fifo", "--jobs-out", str(path))
    assert path.read_text() == (
        "job_id,submit,start,finish,preemptions,gpus\na,0,0,10,0,1\nb,0,10,30,0,1\n"
    )


def test_boundary_times_are_written_as_plain_numbers(tmp_path: Path) -> None:
    trace, path = tmp_path / "t.csv", tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_time_s,num_gpus,duration_s\na,0,1,1000\nb,50,1,100\n")
    run(
        str(trace), "--cluster", "1x1", "--policy", "tiresias-las", "--set", "thresholds=100",
        "--jobs-out", str(path),
    )  # fmt: skip
    assert path.read_text().splitlines()[1:] == ["a,0,0,1160,1,1", "b,50,300,400,0,1"]


def test_jobs_out_with_several_policies_names_a_file_for_each(small: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    policies = ("--policy", "fifo", "--policy", "tiresias-las")
    run(small, "--cluster", "1x1", *policies, "--jobs-out", str(path))
    names = sorted(file.name for file in tmp_path.glob("jobs*"))
    assert names == ["jobs.fifo.csv", "jobs.tiresias-las.csv"]


def test_a_setting_reaches_the_policies_that_know_it(small: str) -> None:
    policies = ("--policy", "fifo", "--policy", "tiresias-las")
    result = run(small, "--cluster", "1x1", *policies, "--set", "thresholds=5", "--json")
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "fifi"), "there is no policy 'fifi'; did you mean 'fifo'?; dlq simulates"),
        ((), "no policy to simulate; --policy was not given"),
        (("--policy", "fifo", "--policy", "fifo"), "cannot compare 'fifo' with itself"),
        (("--policy", "fifo", "--set", "plaice=count"), "'plaice'; did you mean 'place'?"),
        (("--policy", "fifo", "--set", "order=requeue"), "unknown setting 'order'"),
        (("--policy", "fifo", "--set", "place"), "cannot read --set 'place'; it is not KEY=VALUE"),
        (("--policy", "fifo", "--set", "place=high"), "expected one of consolidate, spread, count"),
        (("--policy", "fifo", "--set", "save_s=soon"), "cannot read --set save_s=soon"),
        (("--policy", "fifo", "--set", "save_s=300"), "leave no time for work"),
        (("--policy", "tiresias-las", "--set", "thresholds=9,5"), "cannot simulate"),
        (("--policy", "fifo", "--cluster", "0x4"), "cannot build the cluster '0x4'"),
        (("--policy", "fifo", "--jobs-out", "no/where.csv"), "there is no directory 'no'"),
    ],
)
def test_a_wrong_command_line_is_refused_with_2_and_one_line(
    small: str, arguments: tuple[str, ...], message: str
) -> None:
    result = run(small, "--cluster", "1x1", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("dlq: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_whole_cli_exits_with_the_same_codes(small: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(SMALL + "d,0,two,5\n")
    rest = ["--cluster", "1x1", "--policy"]
    assert run_cli(["simulate", small, *rest, "fifo"]) == 0
    assert run_cli(["simulate", str(bad), *rest, "fifo"]) == 1
    assert run_cli(["simulate", small, *rest, "fifi"]) == 2


def test_a_missing_trace_is_refused_with_2() -> None:
    result = run("nowhere.csv", "--cluster", "1x1", "--policy", "fifo")
    assert result.exit_code == 2
    assert result.stderr == (
        "dlq: cannot read the trace 'nowhere.csv'; no such file or directory; "
        "give the path of a CSV file\n"
    )


def test_a_bad_row_is_refused_with_1_and_names_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(WIDE + "d,0,two,5\n")
    result = run(str(path), "--cluster", "1x1", "--policy", "fifo")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"dlq: cannot use {path}, line 5, column num_gpus; expected a number, found 'two'; "
        "correct the row and run again\n"
    )


def test_a_job_file_that_cannot_be_written_is_a_failure_before_any_output(
    small: str, tmp_path: Path
) -> None:
    taken = tmp_path / "jobs.fifo.csv"
    taken.mkdir()
    policies = ("--policy", "fifo", "--policy", "best-effort")
    out = str(tmp_path / "jobs.csv")
    result = run(small, "--cluster", "1x1", *policies, "--jobs-out", out)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is a directory" in result.stderr


def test_a_setting_given_twice_is_refused(small: str) -> None:
    twice = ("--set", "thresholds=5", "--set", "thresholds=6")
    result = run(small, "--cluster", "1x1", "--policy", "tiresias-las", *twice)
    assert result.exit_code == 2
    assert "cannot use --set 'thresholds=6'; it was thresholds=5 before; give each key once" in (
        result.output
    )
