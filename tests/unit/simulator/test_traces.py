"""The trace contract: what is read, what is refused, and where the error points."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_simulator.errors import DataError, UsageError
from dlq_simulator.readers import text
from dlq_simulator.traces import parse_trace, read_trace

HEADER = "job_id,submit_time_s,num_gpus,duration_s"
DATA = Path(__file__).parents[2] / "data" / "traces"


def test_required_columns_become_jobs_in_submit_order() -> None:
    trace = parse_trace("t.csv", f"{HEADER}\nb,5,1,10\na,0,2,20\n")
    assert [(job.job_id, job.submit_time_s, job.num_gpus) for job in trace.jobs] == [
        ("a", 0, 2),
        ("b", 5, 1),
    ]


def test_equal_submit_times_keep_the_order_of_the_file() -> None:
    trace = parse_trace("t.csv", f"{HEADER}\nz,0,1,1\na,0,1,1\n")
    assert [job.job_id for job in trace.jobs] == ["z", "a"]


def test_whole_numbers_stay_integers_and_a_fraction_is_noticed() -> None:
    whole = parse_trace("t.csv", f"{HEADER}\n1,0.0,1,10\n")
    assert repr(whole.jobs[0].submit_time_s) == "0"
    broken = parse_trace("t.csv", f"{HEADER}\n1,0.5,1,10\n")
    assert (whole.whole_seconds, broken.whole_seconds) == (True, False)


def test_optional_columns_are_typed_and_empty_cells_are_absent() -> None:
    text = (
        f"{HEADER},kind,soft_steps,mem_gb,checkpoint,any_gpu,user,skew\n"
        "1,0,1,10,soft,60:100;120:20,16,no,yes,ann,0.5\n"
        "2,0,1,10,,,,,,,\n"
    )
    first, second = parse_trace("t.csv", text).jobs
    assert list(first.soft_steps) == [(60, 100), (120, 20)]
    assert (first.kind, first.mem_gb, first.checkpoint, first.any_gpu) == ("soft", 16, False, True)
    assert (second.kind, second.soft_steps, second.mem_gb, second.user) == ("be", (), None, None)


def test_every_column_of_the_contract_is_read() -> None:
    cells = {
        "user": "ann", "vc": "v1", "model": "vgg", "kind": "soft", "deadline_s": 90,
        "soft_steps": "60:100;120:20", "gpus_per_worker": 2, "min_workers": 1, "max_workers": 4,
        "ps": 0, "iterations": 5, "gpu_type": "V100", "any_gpu": "no", "mem_gb": 16,
        "checkpoint": "no", "weight": 0.5, "due_s": 200, "skew": 0.5, "rho": 1.5, "status": "Pass",
    }  # fmt: skip
    words = ",".join(map(str, cells.values()))
    trace = parse_trace("t.csv", f"{HEADER},{','.join(cells)}\n1,0,4,10,{words}\n")
    assert trace.notes == ()
    (job,) = trace.jobs
    read = {**cells, "soft_steps": ((60, 100), (120, 20)), "any_gpu": False, "checkpoint": False}
    assert {name: getattr(job, name) for name in cells} == read


def test_unknown_columns_are_ignored_with_a_note() -> None:
    trace = parse_trace("t.csv", f"{HEADER},colour\n1,0,1,10,red\n")
    assert trace.notes == ("ignored columns that dlq does not know: colour",)


def test_tiresias_column_names_are_recognised() -> None:
    trace = read_trace(str(DATA / "own_480_job.csv"))
    assert len(trace.jobs) == 480
    assert sum(job.num_gpus * job.duration_s for job in trace.jobs) == 1_921_232
    assert trace.jobs[0].model == "inception3"


def test_dlq_format_does_not_guess() -> None:
    with pytest.raises(DataError, match="the header has no submit_time_s"):
        read_trace(str(DATA / "own_480_job.csv"), "dlq")


def test_gzip_reads_the_same_as_plain_text(tmp_path: Path) -> None:
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress((DATA / "tiresias_60_job.csv").read_bytes()))
    assert read_trace(str(packed)).jobs == read_trace(str(DATA / "tiresias_60_job.csv")).jobs


def test_a_byte_order_mark_and_windows_line_ends_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + HEADER.encode() + b"\r\n1,0,1,10\r\n")
    assert len(read_trace(str(path)).jobs) == 1


@pytest.mark.parametrize(
    ("row", "column", "why"),
    [
        ("1,0,0,10", "num_gpus", "expected a whole number, 1 or more, found '0'"),
        ("1,0,1.5,10", "num_gpus", "expected a whole number, 1 or more, found '1.5'"),
        ("1,-1,1,10", "submit_time_s", "expected 0 or more, found '-1'"),
        ("1,0,1,nan", "duration_s", "expected a number, found 'nan'"),
        ("1,0,1,1e999", "duration_s", "expected a number of at most 2^53, found '1e999'"),
        ("1,0,1,1_0", "duration_s", "expected a number, found '1_0'"),
        ("1,0,1,", "duration_s", "it is empty"),
        (",0,1,10", "job_id", "it is empty"),
        (
            "a\0b,0,1,10",
            "job_id",
            "expected text without line ends, NUL or other control characters, found 'a\\x00b'",
        ),
        ("1,0,1", "duration_s", "the row has 3 cells and the header 4"),
        ("1,0,1,10,9", None, "the row has 5 cells and the header 4"),
        ("0,0,1,10", "job_id", "job '0' is already on line 2"),
    ],
)
def test_a_bad_row_names_line_and_column(row: str, column: str | None, why: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_trace("t.csv", f"{HEADER}\n0,0,1,10\n{row}\n")
    assert (caught.value.line, caught.value.column, caught.value.why) == (3, column, why)
    assert "t.csv, line 3" in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "cells", "column"),
    [
        ("kind", "maybe", "kind"),
        ("kind", "strict", "deadline_s"),
        ("kind", "soft", "soft_steps"),
        ("soft_steps", "60", "soft_steps"),
        ("soft_steps", "60:100;50:20", "soft_steps"),
        ("soft_steps", "60:20;90:80", "soft_steps"),
        ("soft_steps", "60:0", "soft_steps"),
        ("checkpoint", "true", "checkpoint"),
        ("skew", "1.1", "skew"),
        ("min_workers,max_workers", "4,2", "max_workers"),
        ("deadline_s", "0", "deadline_s"),
    ],
)
def test_a_bad_optional_cell_is_refused_by_name(columns: str, cells: str, column: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_trace("t.csv", f"{HEADER},{columns}\n1,0,1,10,{cells}\n")
    assert (caught.value.line, caught.value.column) == (2, column)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        (f"{HEADER}\n", "it has a header and no jobs"),
        ("job_id,num_gpus,duration_s\n1,1,1\n", "the header has no submit_time_s"),
        (f"{HEADER},num_gpus\n1,0,1,10,1\n", "two columns have this name"),
        (f'{HEADER}\n"1,0,1,10\n', "a quote that opens in this row is not closed"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(text: str, why: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_trace("t.csv", text)
    assert caught.value.why == why


def test_a_line_end_in_a_job_id_is_refused() -> None:
    with pytest.raises(DataError, match=r"column job_id; expected text without line ends"):
        parse_trace("t.csv", f'{HEADER}\n"a\nb",0,1,10\n')


@pytest.mark.parametrize(
    ("row", "column", "why"),
    [
        ("5,2,,4", "num_gpus", "it is 5, no whole number of workers of 2 GPUs"),
        ("4,2,3,", "min_workers", "3 workers of 2 GPUs are more than num_gpus, 4"),
        ("4,,,3", "max_workers", "3 workers of 1 GPUs are fewer than num_gpus, 4"),
        ("4,,2,65537", "max_workers", "expected at most 65536, found 65537"),
    ],
)
def test_an_elastic_job_that_may_not_run_as_asked_is_named_by_the_reader(
    row: str, column: str, why: str
) -> None:
    header = "job_id,submit_time_s,duration_s,num_gpus,gpus_per_worker,min_workers,max_workers\n"
    text = f"{header}a,0,1,4,2,1,4\nb,0,1,{row}\n"
    with pytest.raises(DataError) as caught:
        parse_trace("t.csv", text)
    assert (caught.value.line, caught.value.column, caught.value.why) == (3, column, why)
    assert [job.job_id for job in parse_trace("t.csv", text, skip_bad=True).jobs] == ["a"]


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv"])
def test_only_so_much_of_a_file_is_unpacked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "MOST_BYTES", 2**20)
    path = tmp_path / name
    data = f"{HEADER}\n".encode() + b"x" * 2**24
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="it has more than 1 MiB of text; cut it into smaller"):
            read_trace(str(path))
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_a_broken_gzip_file_and_foreign_bytes_are_data_errors(tmp_path: Path) -> None:
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(HEADER.encode())[:-5])
    with pytest.raises(DataError, match="not a whole gzip file"):
        read_trace(str(packed))
    latin = tmp_path / "t.csv"
    latin.write_bytes(HEADER.encode() + b"\nm\xfcller,0,1,1\n")
    with pytest.raises(DataError, match="line 2; it is not UTF-8"):
        read_trace(str(latin))


@pytest.mark.parametrize("path", ["nowhere.csv", ".", "a\0b.csv"])
def test_a_path_that_holds_no_file_is_a_usage_error(path: str) -> None:
    with pytest.raises(UsageError, match="cannot read the trace"):
        read_trace(path)


@given(st.text())
def test_any_text_is_a_trace_or_a_data_error(text: str) -> None:
    with contextlib.suppress(DataError):
        assert parse_trace("t.csv", text).jobs


CELL = st.one_of(
    st.integers(-5, 10**20).map(str),
    st.floats().map(str),
    st.text(st.characters(exclude_characters='\r\n",', codec="utf-8"), max_size=8),
)


@given(st.lists(st.lists(CELL, min_size=3, max_size=5), min_size=1, max_size=5))
def test_any_row_is_read_or_named(rows: list[list[str]]) -> None:
    text = HEADER + "\n" + "".join(",".join(row) + "\n" for row in rows)
    try:
        trace = parse_trace("t.csv", text)
    except DataError as error:
        bad_line = error.line
        assert bad_line is None or 2 <= bad_line <= len(rows) + 1
    else:
        assert len(trace.jobs) == len(rows)
        assert all(job.num_gpus >= 1 and job.duration_s >= 0 for job in trace.jobs)


ROWS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 512), st.integers(0, 10**7)), min_size=1
)


@given(ROWS)
def test_what_is_written_is_what_is_read(rows: list[tuple[int, int, int]]) -> None:
    lines = [f"{number},{s},{g},{d}" for number, (s, g, d) in enumerate(rows)]
    jobs = parse_trace("t.csv", "\n".join([HEADER, *lines])).jobs
    by_number = sorted(jobs, key=lambda job: int(job.job_id))
    assert [(j.submit_time_s, j.num_gpus, j.duration_s) for j in by_number] == rows
