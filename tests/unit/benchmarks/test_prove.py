"""The campaigns of `make prove`: each names commands that exist, and the page says what was run."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks import ROOT
from benchmarks.prove.__main__ import run
from benchmarks.prove.campaigns import CAMPAIGNS, PYTEST, Campaign, Command
from benchmarks.prove.page import PATH, page_text
from benchmarks.prove.results import FOLDER, Result, kept

PROVES = "import json, os; open(os.environ['DLQ_PROOFS'], 'a').write(json.dumps({}) + chr(10))"


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
