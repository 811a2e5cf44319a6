"""Traces of other simulators: their columns and units in ours, and what is told of what they
lack.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlq_simulator.errors import DataError
from dlq_simulator.readers import FORMATS
from dlq_simulator.traces import parse_trace, read_trace

CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,"
    "expect_time_list,expect_value_list,best_effort,job_type\n"
)
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time\n"
)
HEADER = "job_id,submit_time_s,num_gpus,duration_s\n"
TIMES = "UniqueJobsID,VMtype,GpuType,GpuNumber,maxGpuNumber,cost,ExecutionTime\n"
JOBS = "Application,UniqueJobsID,SubmissionTime,Deadline,Tardinessweight\n"


def test_every_format_of_the_contract_has_a_reader() -> None:
    assert set(FORMATS) == {
        *("auto", "dlq", "tiresias", "chronus", "philly", "muri", "pollux", "gpuaas")
    }


def test_chronus_counts_in_minutes_and_pairs_times_with_rewards() -> None:
    rows = "0,vc,1,5601,5530,alexnet,96,5,159-189,10-8,0,soft\n1,vc,2,5602,1,vgg16,6,6,235,10,0,strict\n"  # noqa: E501
    soft, strict = parse_trace("c.csv", CHRONUS + rows).jobs
    assert (soft.submit_time_s, soft.duration_s, soft.kind) == (336_060, 5760, "soft")
    assert list(soft.soft_steps) == [(9540, 100), (11340, 80)]
    assert (strict.kind, strict.deadline_s, strict.user, strict.vc) == (
        "strict",
        14_100,
        "vc",
        "vc",
    )


def test_chronus_rows_without_gpus_and_out_of_order_are_counted() -> None:
    rows = (
        "0,vc,1,9,1,m,1,5,2,10,1,best\n1,vc,0,5,1,m,1,5,2,10,1,best\n2,vc,1,3,1,m,1,5,2,10,1,best\n"
    )
    trace = parse_trace("c.csv", CHRONUS + rows)
    assert [(job.job_id, job.kind) for job in trace.jobs] == [("2", "be"), ("0", "be")]
    assert trace.notes == (
        "skipped 1 of 3 rows: num_gpu is 0",
        "sorted by submit time: 1 rows came after a later one",
    )


@pytest.mark.parametrize(
    ("lists", "column", "why"),
    [
        ("2-3,10,0", "expect_value_list", "2 times and 1 values"),
        ("2-3,,0", "expect_value_list", "2 times and 0 values"),
        (",,0", "expect_time_list", "a job that is not best-effort needs it"),
        ("3-2,10-5,0", "expect_time_list", "expected rising times"),
        ("2-2,10-5,0", "expect_time_list", "expected rising times"),
        ("2-3,5-10,0", "expect_value_list", "expected values that never rise"),
        ("2-3,11-10,0", "expect_value_list", "expected values from 0.1 to 10"),
        ("2,0.05,0", "expect_value_list", "expected values from 0.1 to 10"),
        ("2,10,2", "best_effort", "expected 0 or 1, found '2'"),
    ],
)
def test_chronus_lists_are_held_to_what_our_own_steps_are(
    lists: str, column: str, why: str
) -> None:
    with pytest.raises(DataError) as caught:
        parse_trace("c.csv", CHRONUS + f"0,vc,1,9,1,m,1,5,{lists},soft\n")
    assert (caught.value.line, caught.value.column, caught.value.why) == (2, column, why)


def test_a_best_effort_row_of_chronus_needs_no_lists() -> None:
    (job,) = parse_trace("c.csv", CHRONUS + "0,vc,1,9,1,m,1,5,,,1,best\n").jobs
    assert (job.kind, job.deadline_s) == ("be", None)


def test_muri_counts_in_milliseconds() -> None:
    trace = parse_trace("m.csv", MURI + "0,2,201694000,1,dqn,128,4472936500,0,490\n")
    assert (trace.jobs[0].submit_time_s, trace.jobs[0].duration_s) == (201_694, 4_472_936.5)
    assert trace.notes == ()


def test_pollux_has_no_run_times_and_says_what_stands_in() -> None:
    trace = parse_trace(
        "p.csv", "name,time,application,num_replicas,batch_size\nb-1,107,bert,4,64\n"
    )
    assert (trace.jobs[0].num_gpus, trace.jobs[0].duration_s) == (4, round(3.16 * 3600 / 4))
    assert "no run times" in trace.notes[0]


def test_an_application_that_pollux_does_not_have_is_refused() -> None:
    with pytest.raises(DataError, match="expected an application of bert, cifar10"):
        parse_trace("p.csv", "name,time,application,num_replicas\nb-1,107,gpt,4\n")


def test_philly_counts_from_its_first_submit() -> None:
    text = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 10:30:41,60,8,480,a\n2017-10-09 10:31:00,5,1,5,b\n"  # noqa: E501
    first, second = parse_trace("p.csv", text).jobs
    assert (first.submit_time_s, second.submit_time_s, first.vc) == (0, 19, "a")


def raw_job(job_id: str, *attempts: tuple[str, str]) -> dict[str, object]:
    detail = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]
    ran = [{"start_time": a, "end_time": b, "detail": detail} for a, b in attempts]
    at = "2017-10-09 10:00:00"
    return {
        "jobid": job_id,
        "user": "u",
        "vc": "v",
        "status": "Pass",
        "submitted_time": at,
        "attempts": ran,
    }


def test_the_raw_philly_log_adds_up_its_attempts_and_counts_jobs_that_never_ran() -> None:
    first, second = (
        ("2017-10-09 10:01:00", "2017-10-09 10:02:00"),
        ("2017-10-09 11:00:00", "2017-10-09 11:00:30"),
    )
    trace = parse_trace("log.json", json.dumps([raw_job("a", first, second), raw_job("b")]))
    (job,) = trace.jobs
    assert (job.job_id, job.num_gpus, job.duration_s, job.status) == ("a", 3, 90, "Pass")
    assert trace.notes == ("skipped 1 of 2 rows: no attempt with GPUs has begun and ended",)


@pytest.mark.parametrize("text", ["[1", "[" * 100_000, '["a"} '])
def test_text_that_is_not_json_is_no_philly_log(text: str) -> None:
    with pytest.raises(DataError, match="it is not a Philly job log"):
        parse_trace("log.json", text)


ONE = ("2017-10-09 10:01:00", "2017-10-09 10:02:00")
BACK = ("2017-10-09 10:02:00", "2017-10-09 10:01:00")


@pytest.mark.parametrize(
    ("change", "field", "why"),
    [
        ({"attempts": 3}, "attempts", "expected a list, found 3"),
        ({"attempts": None}, "attempts", "it is missing"),
        ({"attempts": [7]}, "attempts", "expected a list of objects, found 7 in it"),
        ({"submitted_time": "None"}, "submitted_time", "it is missing"),
        ({"submitted_time": "x"}, "submitted_time",
         "expected a time such as 2017-10-09 10:30:41, found 'x'"),
        ({"jobid": ""}, "jobid", "it is missing"),
        ({"jobid": "a"}, "jobid", "job 'a' is already on entry 1"),
        ({"jobid": "a\nb"}, "jobid",
         "expected text without line ends, NUL or other control characters, found 'a\\nb'"),
        ({"user": ["u"]}, "user", "expected text, found ['u']"),
        ({"attempts": raw_job("b", ONE, BACK)["attempts"]}, "attempts",
         "attempt 2: it ends before it starts"),
        ({"attempts": raw_job("b", ("x", ONE[1]))["attempts"]}, "attempts",
         "attempt 1: start_time: expected a time such as 2017-10-09 10:30:41, found 'x'"),
        ({"attempts": [{"start_time": ONE[0], "end_time": ONE[1], "detail": [{"gpus": 8}]}]},
         "attempts", "attempt 1: gpus: expected a list, found 8"),
    ],
)  # fmt: skip
def test_a_bad_entry_of_the_raw_log_is_named_or_left_out(
    change: dict[str, object], field: str, why: str
) -> None:
    text = json.dumps([raw_job("a", ONE), {**raw_job("b", ONE), **change}, raw_job("c", ONE)])
    with pytest.raises(DataError) as caught:
        parse_trace("log.json", text)
    assert (caught.value.line, caught.value.column, caught.value.why) == (2, field, why)
    assert f"log.json, entry 2, field {field};" in str(caught.value)
    trace = parse_trace("log.json", text, skip_bad=True)
    assert [job.job_id for job in trace.jobs] == ["a", "c"]
    assert trace.notes[0].startswith("skipped 1 bad rows, the first: cannot use log.json, entry 2")


def test_the_word_none_in_the_raw_log_is_nothing() -> None:
    job = {**raw_job("a", ONE, ("None", ONE[1]), (ONE[0], "None")), "user": "None", "vc": None}
    (read,) = parse_trace("log.json", json.dumps([job])).jobs
    assert (read.duration_s, read.user, read.vc) == (60, None, None)


def test_an_offset_in_a_time_of_the_condensed_log_is_honoured() -> None:
    rows = "2017-10-09 10:00:00Z,60,8,480,a\n2017-10-09 11:30:00+01:00,5,1,5,b\n"
    trace = parse_trace("p.csv", "timestamp,duration,num_gpus,gpu_time,cluster\n" + rows)
    assert [job.submit_time_s for job in trace.jobs] == [0, 1800]


def instance(directory: Path, jobs: str, times: str | None) -> str:
    path = directory / "Lof_Selectjobs.csv"
    path.write_text(JOBS + jobs)
    if times is not None:
        (directory / "SelectJobs_times.csv").write_text(TIMES + times)
    return str(path)


def test_a_gpuaas_job_runs_in_its_fastest_configuration_and_is_due_after_its_submit(
    tmp_path: Path,
) -> None:
    times = "J,NC6,K80,1,1,0.5,90\nJ,NC24,K80,4,4,2,30\nJ,NV,M60,2,2,2,30\n"
    (job,) = read_trace(instance(tmp_path, "VGG,J,10,100,0.5\n", times)).jobs
    assert (job.num_gpus, job.duration_s, job.due_s, job.weight) == (2, 30, 90, 0.5)


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (None, "there is no SelectJobs_times.csv beside it"),
        ("K,NC6,K80,1,1,0.5,90\n", "expected a job of SelectJobs_times.csv"),
        (
            "J,NC6,K80,x,1,0.5,90\n",
            r"SelectJobs_times.csv, line 2, column GpuNumber; expected a number, found 'x'",
        ),
        (
            "J,NC6,K80,1,1,0.5\n",
            r"SelectJobs_times.csv, line 2, column ExecutionTime; the row ends before it",
        ),
        (",NC6,K80,1,1,0.5,9\n", r"line 2, column UniqueJobsID; it is empty"),
    ],
)
def test_a_gpuaas_instance_without_its_times_is_refused(
    tmp_path: Path, times: str | None, told: str
) -> None:
    with pytest.raises(DataError, match=told):
        read_trace(instance(tmp_path, "VGG,J,10,100,0.5\n", times))


def test_bad_rows_are_left_out_and_counted_when_asked() -> None:
    text = HEADER + "a,0,1,10\nb,-1,1,10\nc,0,nan,10\na,0,1,10\nd,0\ne,5,1,10\n"
    trace = parse_trace("t.csv", text, skip_bad=True)
    assert [job.job_id for job in trace.jobs] == ["a", "e"]
    assert trace.notes[0].startswith(
        "skipped 4 bad rows, the first: cannot use t.csv, line 3, column submit_time_s"
    )


def test_a_file_of_bad_rows_alone_is_refused_with_the_first_of_them() -> None:
    with pytest.raises(DataError, match=r"line 2, column num_gpus"):
        parse_trace("t.csv", HEADER + "a,0,0,10\n", skip_bad=True)


def test_one_enormous_line_is_an_error_with_its_line() -> None:
    told = r"line 2, column num_gpus; a cell has more than 131072 characters"
    with pytest.raises(DataError, match=told):
        parse_trace("t.csv", HEADER + "a,0," + "1" * 200_000 + ",10\n")


@pytest.mark.parametrize(
    "bad",
    ["x" * 200_000 + ",0,1,10", '"b,0,1,10', '"b"x,0,1,10', '"' + "x" * 200_000, '"b"x,0\n"c'],
    ids=["enormous", "unclosed", "after a quote", "both", "two of them"],
)
def test_only_the_row_that_is_not_csv_is_left_out(bad: str) -> None:
    text = HEADER + f"a,0,1,10\n\n{bad}\nd,0,1,10\ne,0,1,10\n"
    trace = parse_trace("t.csv", text, skip_bad=True)
    assert [job.job_id for job in trace.jobs] == ["a", "d", "e"]
    bads = bad.count("\n") + 1
    assert trace.notes[0].startswith(
        f"skipped {bads} bad rows, the first: cannot use t.csv, line 4"
    )
    with pytest.raises(DataError) as caught:
        parse_trace("t.csv", text)
    assert caught.value.line == 4


@pytest.mark.parametrize("skip_bad", [False, True])
def test_an_enormous_first_line_is_told_as_what_it_is(skip_bad: bool) -> None:
    with pytest.raises(DataError, match=r"line 1; a cell has more than 131072 characters"):
        parse_trace("t.csv", "x" * 200_000 + "\na,0,1,10\n", skip_bad=skip_bad)
    trace = parse_trace("t.csv", HEADER[:-1] + "," + "x" * 100_000 + "\na,0,1,10,1\n")
    assert len(trace.notes[0]) < 100


def test_a_file_of_one_unclosed_quote_is_told_once() -> None:
    with pytest.raises(DataError) as caught:
        parse_trace("t.csv", HEADER + '"a,0,1,10\n', skip_bad=True)
    assert str(caught.value) == (
        "cannot use t.csv, line 2; a quote that opens in this row is not closed; "
        "correct the row and run again"
    )
