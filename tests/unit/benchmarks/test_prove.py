"""The campaigns of `make prove`: each names commands that exist, and the page says what was run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks import ROOT
from benchmarks.prove.__main__ import main, run, run_part, told_bounds, with_parts
from benchmarks.prove.bounds import Bound, Standing, growth_percent, judged, numbers
from benchmarks.prove.campaigns import CAMPAIGNS, PYTEST, Campaign, Command
from benchmarks.prove.goals import BOUNDS
from benchmarks.prove.page import PATH, page_text
from benchmarks.prove.parts import Part, PartRefused, summed, told_part
from benchmarks.prove.results import FOLDER, Result, kept

PROVES = "import json, os; open(os.environ['DLQ_PROOFS'], 'a').write(json.dumps({}) + chr(10))"


SEEDS = (
    "{'campaign': 'small', 'first_seed': int(os.environ['SEED']), 'seeds': int(os.environ['N'])}"
)


def campaign(*words: str) -> Campaign:
    return Campaign("small", "It holds.", "Always.", (Command((PYTEST[0], *words)),))


@pytest.mark.parametrize("command", [each for one in CAMPAIGNS for each in one.commands])
def test_each_command_names_what_is_there(command: Command) -> None:
    if command.is_benchmark:
        assert find_spec(command.words[2])
    elif command.words[2] == "world":
        assert (ROOT / "tests" / "world" / "__main__.py").exists()
    else:
        (path,) = [word for word in command.words if word.startswith("tests/")]
        place = ROOT / path
        files = place.glob("test_*.py") if place.is_dir() else [place]
        assert any("proved(" in file.read_text() for file in files)


def test_every_result_that_is_kept_is_of_a_campaign_and_on_the_page() -> None:
    names = {one.name for one in CAMPAIGNS}
    assert {path.stem for path in FOLDER.glob("*.json")} <= names
    results = {name: kept(name) for name in names}
    assert PATH.read_text() == page_text(CAMPAIGNS, results), (
        "python -m benchmarks.prove --page writes it"
    )


def test_a_campaign_keeps_what_its_commands_told(tmp_path: Path) -> None:
    program = PROVES.format("{'campaign': 'small', 'kills': 3}")
    result = run(campaign("-c", program), full=False)
    assert result.found == [{"campaign": "small", "kills": 3}]
    assert not result.failed
    result.keep(tmp_path)
    assert kept("small", tmp_path) == result
    text = page_text([campaign()], {"small": result})
    assert "short form" in text
    assert "| small | 3 |" in text


def test_a_campaign_that_fails_says_so_on_the_page() -> None:
    result = run(campaign("-c", "print('two jobs ran at once'); raise SystemExit(1)"), full=True)
    assert "two jobs ran at once" in result.failed
    assert "**It failed:**" in page_text([campaign()], {"small": result})


def test_a_campaign_that_tells_no_figure_has_failed() -> None:
    assert run(campaign("-c", "pass"), full=False).failed == "it told no figures"


def test_a_campaign_that_never_ran_is_said_to_be_so() -> None:
    assert "Not run yet." in page_text([campaign()], {"small": None})


def test_minutes_are_told_for_long_runs() -> None:
    result = Result("small", "2026-01-02", "abc", True, 600, "a machine", [])
    assert "10 min" in page_text([campaign()], {"small": result})
    assert "59 s" in page_text([campaign()], {"small": replace(result, took_s=59)})


def in_parts(program: str = PROVES.format(SEEDS)) -> Campaign:
    command = Command((PYTEST[0], "-c", program), full={"N": "100"}, size="N", many_seeds=True)
    return replace(campaign(), commands=(command,))


def test_parts_of_the_full_form_are_summed_and_the_page_says_of_which_commits(
    tmp_path: Path,
) -> None:
    whole = in_parts()
    first = replace(run_part(whole, "1/4"), commit="one")
    result = with_parts(whole, None, first)
    assert not result.full
    assert "25 of 100 so far (n)" in page_text([whole], {"small": result})
    for words in ("2/4", "3/4", "4/4", "4/4"):  # a part that is run again counts once
        result = with_parts(whole, result, replace(run_part(whole, words), commit="two"))
    result.keep(tmp_path)
    assert kept("small", tmp_path) == result
    assert result.full
    assert result.found == [{"campaign": "small", "first_seed": 1, "seeds": 100}]
    text = page_text([whole], {"small": result})
    assert "Run in 4 parts" in text
    assert "Commits: one (25), two (75)." in text


def test_parts_of_other_runs_are_taken_once(tmp_path: Path) -> None:
    file = tmp_path / "chunk"
    file.write_text('{"campaign": "small", "seeds": 50, "first_seed": 1, "broken": 0}\n')
    part = told_part(file, "abc", "2026-01-02", 7)
    result = with_parts(in_parts(), None, part)
    assert (result.parts, result.failed, result.took_s) == ([part], "", 7)
    with pytest.raises(PartRefused, match="some are of the part from 1 to 50"):
        with_parts(in_parts(), result, replace(part, first_seed=50))
    file.write_text("{}\n")
    with pytest.raises(PartRefused, match="does not say its first seed"):
        told_part(file, "abc", "2026-01-02", 0)


def test_a_part_in_which_seeds_broke_is_taken_as_failed_and_counted(tmp_path: Path) -> None:
    """The page said that none had broken: such a run left no figures to take."""
    rows = [
        {"campaign": "x", "seeds": 50, "first_seed": 1, "broken": 0, "broken_seeds": [],
         "states_not_reached": ["a", "b"], "took_s": 60},
        {"campaign": "x", "seeds": 50, "first_seed": 51, "broken": 2, "broken_seeds": [60, 70],
         "states_not_reached": ["b"], "took_s": 120},
    ]  # fmt: skip
    result = None
    for number, row in enumerate(rows):
        file = tmp_path / str(number)
        file.write_text(json.dumps(row) + "\n")
        result = with_parts(in_parts(), result, told_part(file, "abc", "2026-01-02", 0))
    assert result is not None
    assert (result.full, result.took_s) == (True, 180)
    assert result.failed == "seed 51: 2 of 50 seeds broke: 60, 70"
    (told,) = result.found
    assert (told["broken"], told["broken_seeds"]) == (2, [60, 70])
    assert told["states_not_reached"] == ["b"]
    text = page_text([in_parts()], {"small": result})
    assert "50 of 100 so far" in text
    assert "1 more failed" in text
    assert "seed 51: 2 of 50 seeds broke: 60, 70" in text


def test_a_part_that_fails_is_told_until_it_is_run_again() -> None:
    failing = in_parts("raise SystemExit('two jobs ran at once')")
    result = with_parts(failing, None, run_part(failing, "2/4"))
    assert not result.full
    text = page_text([failing], {"small": result})
    assert "No part has ended well." in text
    assert "seed 26: two jobs ran at once" in text
    result = with_parts(failing, result, run_part(in_parts(), "2/4"))
    assert not result.failed
    assert "25 of 100 so far" in page_text([failing], {"small": result})


# --- bounds ---------------------------------------------------------------------------------------


SLOW = Bound("slow", "worst_s", "goal 4", at_most=3, unit="s", reason="It is a small machine.")
MANY = Bound("many", "kills", "goal 1", at_least=100, full=True)
ALL = Bound("all", "reported", "goal 12", at_least="newer")


@pytest.mark.parametrize(
    ("bound", "row", "standing"),
    [
        (SLOW, {"worst_s": 3}, Standing.MET),
        (SLOW, {"worst_s": 3.1}, Standing.MISSED),
        (SLOW, {"worst_s": "0.20 to 4"}, Standing.MISSED),
        (SLOW, {"median_s": 1}, Standing.UNKNOWN),
        (ALL, {"reported": 4, "newer": 4}, Standing.MET),
        (ALL, {"reported": 3, "newer": 4}, Standing.MISSED),
        (ALL, {"reported": 3}, Standing.UNKNOWN),
        (MANY, {"kills": 20}, Standing.TOO_SMALL),
        (replace(SLOW, row={"fault": "killed"}), {"worst_s": 9, "fault": "left"}, Standing.UNKNOWN),
        (replace(SLOW, figure="loss_*"), {"loss_a": 1, "loss_b": 7}, Standing.MISSED),
        (replace(SLOW, figure="unreached"), {"unreached": ["a", "b", "c", "d"]}, Standing.MISSED),
        (replace(SLOW, figure="unreached"), {"unreached": []}, Standing.MET),
    ],
)
def test_a_figure_is_judged_by_its_bound(
    bound: Bound, row: dict[str, object], standing: Standing
) -> None:
    (verdict,) = judged([bound], [{"campaign": "small", **row}], full=False)
    assert verdict.standing is standing
    assert verdict.missed == (standing in (Standing.MISSED, Standing.UNKNOWN))


def test_a_figure_of_a_benchmark_is_judged_too() -> None:
    report = {"benchmark": "x", "figures": [{"name": "submits", "value": 9.0}]}
    (verdict,) = judged([Bound("x", "submits", "goal 6", at_least=10)], [report], full=True)
    assert (verdict.standing, verdict.worst) == (Standing.MISSED, "9")
    assert str(verdict) == "x >= 10 (goal 6): 9, NOT MET"


def test_growth_is_told_from_a_level() -> None:
    assert growth_percent([50, 80, 100, 100, 100, 100, 100, 100, 190, 100]) == 0.0
    assert growth_percent([97, 110, 100, 102, 117, 123, 129, 132, 130, 133, 139, 131]) < 5.0
    assert growth_percent([28, 40, 48, 53, 75, 91, 101, 116, 132, 140, 156]) > 30.0
    assert growth_percent([100]) == 0.0
    assert numbers("1,200 to 3,400.5") == [1200.0, 3400.5]
    assert numbers("h100") == []


def test_a_campaign_that_misses_a_bound_is_told_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Figures were printed, and nobody compared them with the goal: 46 % passed for at most 5 %."""
    small = campaign("-c", PROVES.format("{'campaign': 'small', 'worst_s': 4}"))
    monkeypatch.setattr("benchmarks.prove.campaigns.BOUNDS", {"small": (SLOW,)})
    monkeypatch.setattr("benchmarks.prove.__main__.CAMPAIGNS", (small,))
    monkeypatch.setattr("benchmarks.prove.__main__.NAMES", ["small"])
    monkeypatch.setattr("benchmarks.prove.results.FOLDER", tmp_path)
    monkeypatch.setattr("benchmarks.prove.results.Result.keep", keep_in(tmp_path))
    monkeypatch.setattr("sys.argv", ["prove", "small"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == "small: slow <= 3 s (goal 4): 4 s, NOT MET"
    result = kept("small", tmp_path)
    assert result is not None
    assert told_bounds(small, result) == ["small: slow <= 3 s (goal 4): 4 s, NOT MET"]
    text = page_text([small], {"small": result})
    assert "| slow | <= 3 s | 4 s | NOT MET | goal 4 |" in text
    assert "*slow*: It is a small machine." in text
    assert "| [small](#small) | short | ended well | 1 NOT MET |" in text


def keep_in(folder: Path) -> Callable[[Result], None]:
    real = Result.keep
    return lambda result: real(result, folder)


def test_every_campaign_with_figures_has_bounds_and_none_is_for_nobody() -> None:
    names = {one.name for one in CAMPAIGNS}
    assert BOUNDS.keys() - names <= {"attackers"}
    assert names - BOUNDS.keys() == {"pair"}  # nobody has named a limit for a pair


def test_work_that_is_in_no_commit_is_marked() -> None:
    result = Result("small", "2026-01-02", "abc-dirty", True, 600, "a machine", [])
    text = page_text([campaign()], {"small": result})
    assert "abc-dirty (with changes that are in no commit)" in text


def test_a_middle_has_no_sum_and_a_worst_is_the_worst_of_all() -> None:
    rows = [
        {"campaign": "x", "jobs": 3, "median_s": 1.5, "worst_s": 2.0, "left_least": 4},
        {"campaign": "x", "jobs": 4, "median_s": 1.0, "worst_s": 1.0, "left_least": 2},
    ]
    parts = [Part(number, 1, 1, "abc", "day", 1, [row]) for number, row in enumerate(rows)]
    told = {"campaign": "x", "jobs": 7, "median_s": "1 to 1.50", "worst_s": 2.0}
    assert summed(parts) == [told | {"left_least": 2}]


@pytest.mark.parametrize("words", ["0/4", "3", "a/b"])
def test_words_that_name_no_part_are_refused(words: str) -> None:
    with pytest.raises(PartRefused, match="is no part"):
        run_part(in_parts(), words)


def test_a_campaign_of_one_piece_has_no_parts() -> None:
    with pytest.raises(PartRefused, match="one piece"):
        run_part(campaign("-c", "pass"), "1/2")


@pytest.mark.parametrize("command", [c for one in CAMPAIGNS for c in one.commands if c.size])
def test_the_parts_of_each_campaign_make_the_whole(command: Command) -> None:
    parts = [command.part(number, 7) for number in range(1, 8)]
    assert sum(part.whole() for part in parts) == command.whole()
    assert len({part.full["SEED"] for part in parts}) == 7
