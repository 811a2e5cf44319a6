"""`--set history=FILE`: services that a policy is told before the replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_simulator.errors import DataError, UsageError
from dlq_simulator.history import read_history
from dlq_simulator.settings import read_settings

TRACES = Path(__file__).parents[2] / "data" / "traces"


@pytest.mark.parametrize("text", ["duration\n4\n8.5\n", "4\n8.5\n", "id,duration\na,4\nb,8.5\n"])
def test_a_column_or_one_number_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.csv"
    path.write_text(text)
    assert read_history(str(path)) == [4.0, 8.5]


def test_the_samples_of_the_tiresias_simulator() -> None:
    samples = read_history(str(TRACES / "tiresias_yarn-gput1000.csv"))
    assert (len(samples), samples[:2]) == (1001, [121.0, 122.0])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no job"),
        ("duration\n", "holds no job"),
        ("duration\n4\n-1\n", "line 3, column duration; expected more than 0, not '-1'"),
        ("duration\nnan\n", "line 2, column duration; expected a number"),
        ("id,duration\na\n", "line 2, column duration; the row ends before it"),
        ("id,seconds\na,4\n", "line 1; it has no column 'duration'"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "history.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        read_history(str(path))


def test_only_policies_with_levels_take_one() -> None:
    with pytest.raises(UsageError, match="unknown setting 'history'"):
        read_settings(["srtf"], ["history=x.csv"])
    with pytest.raises(UsageError, match="cannot read"):
        read_settings(["tiresias-gittins"], ["history=/nowhere/x.csv"])


@pytest.mark.parametrize("gpus", ["num_gpu", "num_gpus"])
def test_a_trace_gives_duration_times_gpus(tmp_path: Path, gpus: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"job_id,{gpus},submit_time,duration\na,2,0,4\nb,8,5,8.5\n")
    assert read_history(str(path)) == [8.0, 68.0]
    path.write_text(f"job_id,{gpus},submit_time,duration\na,two,0,4\n")
    with pytest.raises(DataError, match=f"line 2, column {gpus}; expected a number"):
        read_history(str(path))


def test_a_file_that_is_not_there_is_called_what_it_should_be() -> None:
    with pytest.raises(UsageError, match=r"cannot read the history 'nowhere\.csv'"):
        read_history("nowhere.csv")
