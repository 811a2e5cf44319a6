"""Failed tests run once more; a run that was cut never counts as one of failed tests."""

import json
from pathlib import Path

import pytest

from support.failed_again import failed_in, main


def a_run(runs: Path, name: str, code: int | None, *failed: str) -> None:
    cache = runs / name / "v/cache"
    cache.mkdir(parents=True)
    if code is not None:
        (runs / name / "code").write_text(f"{code}\n")
    if failed:
        (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))


def test_the_failed_ones_of_all_runs_are_found(tmp_path: Path) -> None:
    a_run(tmp_path, "clean", 0)
    a_run(tmp_path, "rest", 1, "tests/test_b.py::two")
    a_run(tmp_path, "unit", 1, "tests/test_a.py::one[x y]")
    assert failed_in(tmp_path) == ["tests/test_a.py::one[x y]", "tests/test_b.py::two"]


@pytest.mark.parametrize(
    ("code", "failed"),
    [(None, ()), (None, ("t",)), (1, ()), (3, ("t",)), (137, ()), (0, ("t",))],
)
def test_another_end_than_failed_tests_stays_one(
    tmp_path: Path,
    code: int | None,
    failed: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    a_run(tmp_path, "unit", 1, "tests/test_a.py::one")
    a_run(tmp_path, "worlds", code, *failed)
    assert main([str(tmp_path)]) == 1
    assert "more than failed tests went wrong: worlds ended with" in capsys.readouterr().err


@pytest.mark.parametrize(("body", "code", "named"), [("pass", 0, True), ("assert 0", 1, False)])
def test_a_test_that_passes_alone_is_named(
    tmp_path: Path, body: str, code: int, named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_again.py"
    file.write_text(f"def test_it():\n    {body}\n")
    a_run(tmp_path / "runs", "unit", 1, f"{file}::test_it")
    assert main([str(tmp_path / "runs")]) == code
    assert (f"UNSTEADY {file}::test_it" in capsys.readouterr().out) == named
