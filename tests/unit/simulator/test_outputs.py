"""No output of `dlq simulate` overwrites an input, by whatever name the file is called."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dlq_simulator.command import simulate
from dlq_simulator.outputs import check_outputs

DATA = Path(__file__).parents[2] / "data" / "traces"
JOBS = "job_id,submit_time_s,num_gpus,duration_s\na,0,1,10\nb,0,1,20\n"
CLUSTER = """[[nodes]]
count = 1
gpus = 1

[[loans]]
count = 1
gpus = 1
trace = "load.csv"
"""
LOAD = "time_s,busy\n0,0.5\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(simulate, list(arguments))


def same(file: Path, _name: str) -> Path:
    return file


def dotted(file: Path, _name: str) -> Path:
    return file.parent / "." / ".." / file.parent.name / file.name


def linked(file: Path, name: str) -> Path:
    (file.parent / name).symlink_to(file)
    return file.parent / name


def hard_linked(file: Path, name: str) -> Path:
    os.link(file, file.parent / name)
    return file.parent / name


def relative(file: Path, _name: str) -> Path:
    return Path(os.path.relpath(file))


WAYS = [same, dotted, linked, hard_linked, relative]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("option", ["--jobs-out", "--report"])
def test_an_output_over_the_trace_is_refused(
    trace: Path, option: str, way: Callable[[Path, str], Path]
) -> None:
    output = str(way(trace, "other.csv"))
    result = run(str(trace), "--cluster", "1x1", "--policy", "fifo", option, output)
    assert result.exit_code == 2
    assert f"cannot write {option} to {output!r}; it is the trace, " in result.output
    assert trace.read_text() == JOBS


def test_the_file_of_one_of_several_policies_is_an_output_too(trace: Path) -> None:
    mine = trace.with_name("jobs.fifo.csv")
    trace.rename(mine)
    two = ("--policy", "fifo", "--policy", "best-effort")
    result = run(str(mine), "--cluster", "1x1", *two, "--jobs-out", str(trace))
    assert result.exit_code == 2
    assert "it is the trace" in result.output
    assert mine.read_text() == JOBS


def test_a_picture_over_the_trace_is_refused(trace: Path) -> None:
    plots = trace.with_name("plots")
    plots.mkdir()
    os.link(trace, plots / "jct-cdf.svg")
    result = run(str(trace), "--cluster", "1x1", "--policy", "fifo", "--plot", str(plots))
    assert result.exit_code == 2
    assert "cannot write --plot" in result.output
    assert trace.read_text() == JOBS


@pytest.mark.parametrize(
    ("over", "name"), [("cluster.toml", "the cluster"), ("load.csv", "a load of the cluster")]
)
def test_the_files_of_the_cluster_are_inputs(trace: Path, over: str, name: str) -> None:
    texts = {"cluster.toml": CLUSTER, "load.csv": LOAD}
    for file, text in texts.items():
        trace.with_name(file).write_text(text)
    cluster, output = str(trace.with_name("cluster.toml")), trace.with_name(over)
    asked = ("--cluster", cluster, "--policy", "aryl", "--jobs-out", str(output))
    result = run(str(trace), *asked)
    assert result.exit_code == 2
    assert f"it is {name}, " in result.output
    assert output.read_text() == texts[over]


def test_the_history_of_a_policy_is_an_input(trace: Path) -> None:
    history = trace.with_name("history.csv")
    history.write_text("duration\n5\n")
    asked = ("--cluster", "1x1", "--policy", "tiresias-gittins", "--set", f"history={history}")
    result = run(str(trace), *asked, "--jobs-out", str(history))
    assert result.exit_code == 2
    assert "it is the history, " in result.output
    assert history.read_text() == "duration\n5\n"


def test_the_run_times_beside_an_instance_are_an_input(trace: Path) -> None:
    times = trace.with_name("SelectJobs_times.csv")
    times.write_text("UniqueJobsID\n")
    asked = ("--cluster", "1x1", "--policy", "fifo", "--jobs-out", str(times))
    result = run(str(trace), *asked)
    assert result.exit_code == 2
    assert "the run times beside the trace" in result.output
    assert times.read_text() == "UniqueJobsID\n"


def test_two_outputs_are_not_one_file(trace: Path) -> None:
    output = str(trace.with_name("new.html"))
    both = ("--jobs-out", output, "--report", output.replace("new", "./new"))
    result = run(str(trace), "--cluster", "1x1", "--policy", "fifo", *both)
    assert result.exit_code == 2
    assert "is written to the same file" in result.output
    assert not Path(output).exists()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("paper", ["chronus", "aryl"])
def test_a_workload_is_not_written_over_its_trace(
    trace: Path, paper: str, way: Callable[[Path, str], Path]
) -> None:
    output = str(way(trace, "other.csv"))
    result = run("generate", paper, str(trace), "-o", output)
    assert result.exit_code == 2
    assert "it is the trace" in result.output
    assert trace.read_text() == JOBS


def test_a_device_may_be_an_input_and_an_output(trace: Path) -> None:
    check_outputs([(Path("/dev/null"), "--jobs-out")], [(Path("/dev/null"), "the trace")])
    asked = ("--cluster", "1x1", "--policy", "fifo", "--jobs-out", "/dev/null")
    assert run(str(trace), *asked, "--report", "/dev/null").exit_code == 0


def test_other_files_are_written_as_before(trace: Path) -> None:
    output = trace.with_name("out.csv")
    asked = (str(trace), "--cluster", "1x1", "--policy", "fifo", "--jobs-out", str(output))
    assert run(*asked).exit_code == 0
    assert run(*asked).exit_code == 0, "an earlier output is no input"
    assert output.read_text().startswith("job_id,submit,")


@pytest.mark.parametrize("paper", ["chronus", "aryl"])
def test_a_workload_has_no_column_that_traces_do_not_have(trace: Path, paper: str) -> None:
    output = trace.with_name("load.csv")
    assert run("generate", paper, str(trace), "-o", str(output)).exit_code == 0
    again = run(str(output), "--cluster", "2x8", "--policy", "fifo")
    assert (again.exit_code, again.stderr) == (0, "")


def test_a_workload_is_made_of_an_instance_with_run_times_of_its_own() -> None:
    trace = DATA / "gpuaas" / "exp-10-100-0" / "Lof_Selectjobs.csv.gz"
    assert run("generate", "chronus", str(trace)).exit_code == 0
