"""Every figure of a benchmark stands beside its goal, in text and in JSON, and the table sums them
up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import pytest
from benchmarks.support import conditions as conditions_room
from benchmarks.support.conditions import UNKNOWN_COMMIT, commit_name
from benchmarks.support.report import Figure, Report, number, summary


def a_report(*arguments: str) -> Report:
    return Report.begin("trial", argparse.ArgumentParser(prog="trial"), arguments)


def test_a_figure_says_whether_its_goal_is_met() -> None:
    under = Figure(name="a plan", value=12.3, unit="ms", at_most=15)
    over = Figure(name="a plan", value=15.1, unit="ms", at_most=15)
    rate = Figure(name="submits", value=1234, unit="/s", at_least=900)
    slow = Figure(name="submits", value=899, unit="/s", at_least=900)
    assert under.line() == "a plan: 12.3 ms  (goal <= 15 ms: met)"
    assert over.line() == "a plan: 15.1 ms  (goal <= 15 ms: NOT MET)"
    assert [rate.met, slow.met] == [True, False]


def test_a_figure_without_a_goal_claims_nothing() -> None:
    figure = Figure(name="on disk", value=61, unit="MiB", note="100000 jobs")
    assert (figure.met, figure.line()) == (None, "on disk: 61 MiB  100000 jobs")


def test_conditions_name_cores_load_python_and_versions(capsys: pytest.CaptureFixture[str]) -> None:
    report = a_report()
    told = capsys.readouterr().out
    assert told.startswith("conditions: ")
    for word in ("cores", "load", "Python", "grpcio", "SQLite"):
        assert word in told
    assert report.conditions["packages"]["dlq"]


def test_with_json_stdout_is_one_object_and_the_text_goes_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = a_report("--json")
    report.figure("submits", 1234.0, "/s", at_least=900)
    report.end()
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["schema"] == "dlq.bench.v1"
    assert document["benchmark"] == "trial"
    assert document["conditions"]["core_count"] >= 1
    assert document["figures"] == [
        {
            "name": "submits",
            "value": 1234.0,
            "unit": "/s",
            "goal": ">= 900 /s",
            "met": True,
            "note": None,
        }
    ]
    assert "submits: 1,234 /s  (goal >= 900 /s: met)" in err


def test_the_table_at_the_end_lists_what_has_a_goal_and_nothing_else() -> None:
    report = a_report()
    report.figure("p50", 50.4, "ms", at_most=50)
    report.figure("p99", 60.0, "ms")
    report.figure("rate", 1000.0, "/s", at_least=900)
    assert summary([report.document()]) == (
        "BENCHMARK  FIGURE  VALUE     GOAL       MET\n"
        "trial      p50     50.4 ms   <= 50 ms   NO\n"
        "trial      rate    1,000 /s  >= 900 /s  yes\n"
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(12345.6, "12,346"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.0123")]
)
def test_numbers_keep_the_digits_that_matter(value: float, shown: str) -> None:
    assert number(value) == shown


def test_pages_of_results_do_not_change_the_name_of_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A series of runs is of one commit, although each of them writes its result."""
    monkeypatch.setattr(conditions_room, "ROOT", tmp_path)
    assert commit_name() == UNKNOWN_COMMIT
    page, module = tmp_path / "docs" / "reliability.md", tmp_path / "module.py"
    page.parent.mkdir()
    for file in (page, module):
        file.write_text("as committed")
    person = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    for words in (("init", "-q"), ("add", "."), (*person, "commit", "-qm", "all")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean = commit_name()
    page.write_text("written by a run")
    assert commit_name() == clean
    module.write_text("changed")
    assert commit_name() == f"{clean}-dirty"
