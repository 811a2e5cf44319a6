"""Pictures of replays: the numbers behind them, and files that are the same for the same replay."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner, Result

from dlq_simulator import command
from dlq_simulator.command import simulate
from dlq_simulator.metrics import ReplayOutcome, Span
from dlq_simulator.plots import series
from dlq_simulator.plots.series import busy_gpus, busy_shares, cdf, gantt
from dlq_simulator.workload import TraceJob
from support.shown_page import shown_page

TRACE = str(Path(__file__).parents[3] / "data" / "traces" / "tiresias_60_job.csv")


def outcome(gpus: int, *spans: tuple[int, int]) -> ReplayOutcome:
    job = TraceJob(job_id=f"{gpus}{spans}", submit_time_s=0, num_gpus=gpus, duration_s=1)
    return ReplayOutcome(
        job=job,
        start_s=spans[0][0],
        finish_s=spans[-1][1],
        queue_s=0,
        overhead_s=0,
        preemptions=len(spans) - 1,
        spans=tuple(Span(*span, gpus) for span in spans),
    )


def test_a_cdf_rises_by_one_part_a_value() -> None:
    assert cdf([3, 1, 2, 2]) == ([1.0, 2.0, 2.0, 3.0], [0.25, 0.5, 0.75, 1.0])


def test_gpus_are_held_from_each_start_to_each_leave() -> None:
    series = busy_gpus([outcome(4, (0, 10), (20, 30)), outcome(2, (5, 20))])
    assert dict(zip(*series, strict=True)) == {0: 4, 5: 6, 10: 2, 20: 4, 30: 0}


def test_no_lane_of_a_gantt_chart_holds_two_at_once() -> None:
    outcomes = [
        outcome(2, (0, 4), (6, 9)),
        outcome(1, (1, 8)),
        outcome(3, (8, 12)),
        outcome(1, (4, 6)),
    ]
    bars = gantt(outcomes, gpus=4)
    assert sum(bar.gpus for bar in bars if bar.job == 0) == 4
    for lane in range(4):
        held = sorted((b.begin_s, b.end_s) for b in bars if b.lane <= lane < b.lane + b.gpus)
        assert all(before[1] <= after[0] for before, after in pairwise(held))


def draw(directory: Path, *words: str) -> Result:
    policies = ("--policy", "fifo", "--policy", "tiresias-las")
    report = str(directory / "r.html")
    words = (*policies, "--plot", str(directory / "p"), "--report", report, *words)
    return CliRunner().invoke(simulate, [TRACE, "--cluster", "2x4", *words])


@pytest.mark.long(
    "unit/simulator/plots/test_plots.py::test_the_report_stands_alone_and_has_every_figure_of_the_table"
)
def test_the_same_replay_draws_the_same_bytes(tmp_path: Path) -> None:
    first, again = tmp_path / "1", tmp_path / "2"
    for directory in (first, again):
        directory.mkdir()
        assert draw(directory).exit_code == 0
    names = sorted(path.name for path in (first / "p").iterdir())
    assert names == [
        "gantt.fifo.svg",
        "gantt.tiresias-las.svg",
        "jct-cdf.svg",
        "queue-cdf.svg",
        "utilization.svg",
    ]
    assert all((first / "p" / n).read_bytes() == (again / "p" / n).read_bytes() for n in names)
    assert (first / "r.html").read_bytes() == (again / "r.html").read_bytes()


@pytest.mark.long(
    "unit/simulator/plots/test_plots.py::test_the_report_stands_alone_and_has_every_figure_of_the_table"
)
def test_missed_deadlines_and_cost_get_bars_where_there_are_any(tmp_path: Path) -> None:
    trace, cluster = tmp_path / "t.csv", tmp_path / "c.toml"
    trace.write_text(
        "job_id,submit_time_s,num_gpus,duration_s,kind,deadline_s,due_s,weight\n"
        "a,0,1,100,strict,150,,\nb,0,1,100,strict,150,120,2\n"
    )
    cluster.write_text("[[nodes]]\ncount=1\ngpus=1\nprice_per_hour=3.6\n")
    words = (
        "--policy",
        "fifo",
        "--plot",
        str(tmp_path / "p"),
        "--report",
        str(tmp_path / "r.html"),
    )
    done = CliRunner().invoke(simulate, [str(trace), "--cluster", str(cluster), "--json", *words])
    (found,) = json.loads(done.stdout)["policies"]
    assert (found["wdmr"], found["slo_met_ratio"], found["cost"]) == (0.5, 0.5, 0.2)
    assert found["tardiness_cost"] == 80 * 2
    drawn = {path.name for path in (tmp_path / "p").iterdir()}
    assert {"wdmr.svg", "cost.svg"} <= drawn
    page = (tmp_path / "r.html").read_text()
    assert "Weighted deadline miss rate</figcaption>" in page
    assert '<th scope="row">tardiness_cost</th><td class="n">160.000</td>' in page


def test_the_report_stands_alone_and_has_every_figure_of_the_table(tmp_path: Path) -> None:
    draw(tmp_path)
    text = (tmp_path / "r.html").read_text()
    assert text.count("<svg") == 5
    assert text.count("<table>") == 4, "the metrics, and a table for each chart with numbers"
    assert "avg_jct_s" in text
    assert "1,556.483" in text
    links = set(re.findall(r'(?:src|href)="([^"#][^"]*)"', text))
    assert links == set()
    assert "wdmr" not in text


def test_the_report_obeys_a_policy_that_forbids_all_but_its_own_style(tmp_path: Path) -> None:
    draw(tmp_path)
    text = (tmp_path / "r.html").read_text()
    found = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert found is not None
    digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in text
    assert not re.search(r"<script|\sstyle=|\son\w+=|url\(|@import", text)


def test_the_report_needs_no_drawing_library(tmp_path: Path) -> None:
    report = tmp_path / "r.html"
    words = [TRACE, "--cluster", "2x4", "--policy", "fifo", "--report", str(report)]
    with mock.patch.dict("sys.modules", {"matplotlib": None}):
        assert CliRunner().invoke(simulate, words).exit_code == 0
    assert report.read_text().startswith("<!doctype html>")


def test_the_tables_of_the_report_say_what_its_charts_show(tmp_path: Path) -> None:
    trace, report = tmp_path / "t.csv", tmp_path / "r.html"
    trace.write_text(
        "job_id,submit_time_s,num_gpus,duration_s,kind,deadline_s\n"
        "a,0,1,3600,be,\nb,0,1,3600,strict,100\n"
    )
    words = [str(trace), "--cluster", "1x1", "--policy", "fifo", "--report", str(report)]
    assert CliRunner().invoke(simulate, words).exit_code == 0
    shown = shown_page(report.read_text())
    times = next(one for one in shown.tables if one[0] == ["share of jobs", "fifo"])
    assert {row[0]: row[1] for row in times[1:]}["longest"] == "02:00:00"
    assert {row[0]: row[1] for row in times[1:]}["50% within"] == "01:00:00"
    use = next(one for one in shown.tables if one[1][0].startswith("until "))
    assert {row[1] for row in use[1:]} == {"100.0%"}
    promises = next(one for one in shown.tables if one[0][0] == "jobs with deadlines")
    assert promises[1:] == [["kept", "0"], ["missed", "0"], ["not promised", "1"]]


def test_use_is_the_mean_of_each_part() -> None:
    held = [outcome(2, (0, 10)), outcome(2, (5, 20))]
    assert busy_shares(held, 4, 0, 20, 4) == [0.5, 1.0, 0.5, 0.5]


def test_a_name_with_markup_is_told_as_text(tmp_path: Path) -> None:
    trace = tmp_path / "<b>.csv"
    trace.write_bytes(Path(TRACE).read_bytes())
    report = tmp_path / "r.html"
    words = [str(trace), "--cluster", "2x4", "--policy", "fifo", "--report", str(report)]
    assert CliRunner().invoke(simulate, words).exit_code == 0
    assert "<b>.csv" not in report.read_text()


@pytest.mark.parametrize("option", ["--plot", "--report"])
def test_a_place_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path, option: str) -> None:
    taken = tmp_path / "taken"
    taken.mkdir() if option == "--report" else taken.write_text("")
    words = [TRACE, "--cluster", "2x4", "--policy", "fifo", option, str(taken)]
    result = CliRunner().invoke(simulate, words)
    assert result.exit_code in (1, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_places_of_pictures_are_tried_before_any_replay(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    words = [TRACE, "--cluster", "2x4", "--policy", "fifo", "--plot", str(taken / "p")]
    with mock.patch.object(command, "replay", side_effect=AssertionError("it replays")):
        result = CliRunner().invoke(simulate, words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("dlq: cannot create")


def test_a_missing_drawing_library_is_told_before_any_replay(tmp_path: Path) -> None:
    words = [TRACE, "--cluster", "2x4", "--policy", "fifo", "--plot", str(tmp_path)]
    with (
        mock.patch.object(command, "find_spec", return_value=None),
        mock.patch.object(command, "replay", side_effect=AssertionError("it replays")),
    ):
        result = CliRunner().invoke(simulate, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "matplotlib is not installed" in result.stderr


def test_figures_are_told_though_drawing_fails(tmp_path: Path) -> None:
    (tmp_path / "jct-cdf.svg").mkdir()  # in the way
    jobs = tmp_path / "jobs.csv"
    words = [
        "--cluster",
        "2x4",
        "--policy",
        "fifo",
        "--plot",
        str(tmp_path),
        "--jobs-out",
        str(jobs),
    ]
    result = CliRunner().invoke(simulate, [TRACE, *words])
    assert result.exit_code == 1
    assert result.stdout.startswith("POLICY")
    assert len(jobs.read_text().splitlines()) == 61
    assert "is a directory" in result.stderr


@pytest.mark.long(
    "unit/simulator/plots/test_plots.py::test_the_report_stands_alone_and_has_every_figure_of_the_table"
)
def test_a_gantt_chart_that_is_cut_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_SPANS", 50)
    result = draw(tmp_path)
    page = (tmp_path / "r.html").read_text()
    for policy in ("fifo", "tiresias-las"):
        note = f"gantt.{policy}.svg shows the first 50 of 60 attempts"
        assert f"dlq: note: {note}\n" in result.stderr
        assert note in page
        assert (tmp_path / "p" / f"gantt.{policy}.svg").exists()


def test_a_cut_chart_keeps_who_began_first() -> None:
    outcomes = [outcome(1, (0, 4), (6, 9)), outcome(1, (5, 8))]
    assert [bar.begin_s for bar in gantt(outcomes, gpus=2, most=2)] == [0, 5]
