"""A race is told as a table, as plain values, and as a page with commit and date."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.race.__main__ import LINES
from benchmarks.race.clients import Clients
from benchmarks.race.dlq_client import a_spec
from benchmarks.race.lines.alone import ASKED, matching
from benchmarks.race.lines.submits import SHAPES
from benchmarks.race.page import page_text
from benchmarks.race.pairs import Goals, Row, Turn
from benchmarks.race.slurm_side import SOURCE
from benchmarks.race.table import markdown_table, row_text, text_table
from benchmarks.support.conditions import conditions

ROOT = Path(__file__).resolve().parents[3]
QUIET, LOUD = 0.0, 0.7
CLIENT = "print('ready', flush=True); input(); print('done', flush=True); input()"


def a_row(others: float = QUIET) -> Row:
    slurm = [Turn(20.0, 1.0, 3.0, others, 0.0)] * 3
    dlq = [Turn(10.0, 0.5, 2.0, others, 0.0)] * 3
    goals = Goals(ahead=1.2)
    return Row("calls", "a call", "ms", "sbatch", goals=goals, slurm=slurm, dlq=dlq)


def test_a_row_says_both_sides_the_ratio_and_the_goal() -> None:
    told = row_text(a_row())
    for words in ("dlq 10 ms", "Slurm 20 ms", "2.00 x [2.00, 2.00]", ">= 1.2 x Slurm: met"):
        assert words in told


def test_another_peer_stands_in_the_place_of_slurm() -> None:
    row = a_row()
    row.peer, row.goals = "HyperQueue", Goals()
    assert "HyperQueue 20 ms" in row_text(row)
    assert row.facts()["peer"] == "HyperQueue"


def test_a_loaded_row_shows_values_and_cpu_but_no_ratio() -> None:
    cells = text_table([a_row(LOUD)]).splitlines()[1]
    assert " x [" not in cells
    assert "too loaded to tell" in cells
    assert "1.00 : 0.50 ms" in cells


def test_dlq_alone_stands_beside_its_goal() -> None:
    row = Row("alone", "tick", "us", "", goals=Goals(at_most=20), steady=True)
    row.dlq = [Turn(15.0, 0.0, 0.0, 0.0, 0.0)]
    assert row_text(row) == "tick: 15 us  (goal <= 20 us: met)"


def test_a_row_of_dlq_alone_that_was_repeated_tells_its_spread() -> None:
    row = Row("alone", "tick", "us", "", steady=True)
    row.dlq = [Turn(value, 0.0, 0.0, 0.0, 0.0) for value in (15.0, 14.0, 18.0)]
    assert "15 us: alone, 3 times: 14 to 18" in row_text(row)
    assert "alone, 3 times: 14 to 18" in text_table([row])


def test_clients_of_both_sides_ask_for_the_same_shapes() -> None:
    specs = [a_spec("race", number, SHAPES) for number in range(SHAPES)]
    sizes = {spec.resources.memory_limit_bytes for spec in specs}
    assert (len(sizes), max(sizes)) == (SHAPES, SHAPES * 16 << 20)
    assert [spec.resources.gpu_count for spec in specs[:5]] == [1, 2, 4, 8, 1]
    source = SOURCE.read_text()
    assert "job.pn_min_memory = 16 * (1 + number % shapes); /* MiB */" in source
    assert "widths[shapes > 1 ? number % 4 : 0]" in source


def test_the_page_names_command_commit_day_and_conditions() -> None:
    page = page_text(conditions(), [a_row()], 5, False, "abc123", "2026-11-27")
    for words in (
        "`make race`",
        "abc123",
        "2026-11-27",
        "5 pairs",
        "cores",
        "| a call |",
        "sbatch",
    ):
        assert words in page
    assert page.startswith("<!-- Generated from the code")


def test_the_markdown_table_has_as_many_cells_in_each_line() -> None:
    lines = markdown_table([a_row(), a_row(LOUD)]).splitlines()
    assert len({line.count(" | ") for line in lines}) == 1


def test_a_row_is_plain_values_too() -> None:
    facts = json.loads(json.dumps(a_row().facts()))
    assert facts["ratio"]["times"] == 2.0
    assert facts["slurm"][0]["others"] == 0.0
    assert facts["verdict"] == "met"


def test_figures_of_other_benchmarks_are_found_by_their_names() -> None:
    goals = {"submits, 64 in flight": Goals(at_least=1800), "full replan*": Goals(at_most=15)}
    names = ["submits, 64 in flight", "submits, 64 in flight, p50", "full replan, empty"]
    found = matching([{"name": name, "value": 1.0} for name in names], goals)
    assert [figure["name"] for figure, _ in found] == [names[0], names[2]]


def test_the_other_benchmarks_are_there() -> None:
    for asked in ASKED:
        assert (ROOT / "benchmarks" / f"{asked.words[0].replace('.', '/')}.py").exists()


def test_clients_begin_together_and_are_waited_for() -> None:
    with Clients([[sys.executable, "-c", CLIENT]] * 2, {}) as clients:
        assert clients.go() > 0
        assert len(clients.pids) == 2


def test_an_unknown_line_is_refused_with_the_names_of_all() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.race", "marathon"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "there is no line 'marathon'" in done.stderr
    assert all(name in done.stderr for name in LINES)
