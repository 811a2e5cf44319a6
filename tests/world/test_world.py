"""A handful of seeds are sound, a seed is the same world every time, and stories stay mended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from dlq_master.model.jobs.job import JobState
from support.extent import LONG
from world.bugs import planted
from world.cast.world import World
from world.journal import plot_of
from world.judging.history import Operation, is_linearizable
from world.seeds import play, quiet, shrunk_seed, summed
from world.shrink import kind_of, read_story
from world.stage.plot import Plot, draw

HERE = Path(__file__).parent
STORIES = sorted((HERE / "stories").glob("*.json"))
FEW, SHORT, FULL = 5, 50, 1000
PARTS = 4
MOST_RUNS = 60  # to shrink one


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def judge(seeds: Iterable[int], most_runs: int = MOST_RUNS) -> None:
    """Fail with the story of the first seed that breaks, shrunk in so many runs."""
    done = summed(play(seed) for seed in seeds)
    for seed, broken in done.broken[:1]:
        shrunk = shrunk_seed(seed, most_runs=most_runs)
        told = "\n".join(shrunk.lines if shrunk else ())
        pytest.fail(f"seeds {[it for it, _ in done.broken]} break. {seed}: {broken}\n\n{told}")


def test_a_few_worlds_are_sound() -> None:
    judge(range(1, FEW + 1))


def test_a_seed_that_breaks_is_shrunk_and_its_story_told() -> None:
    """The short form of .ci/run said only its number."""
    with planted("keeps_the_epoch"), pytest.raises(pytest.fail.Exception) as told:
        judge([1], most_runs=15)
    first, *story = str(told.value).splitlines()
    assert "seeds [1] break" in first
    assert "BROKEN" in story[-1]
    assert len(story) < len(play(1).lines)


@pytest.mark.long("world/test_world.py::test_a_few_worlds_are_sound")
@pytest.mark.parametrize("part", range(PARTS))
def test_more_worlds_are_sound(part: int) -> None:
    """In parts, so that all cores take some."""
    judge(range(FEW + 1 + part, (FULL if LONG else SHORT) + 1, PARTS))


def test_a_seed_is_the_same_world_under_any_order_of_sets() -> None:
    """In two processes that hash strings differently: this one does so at random."""
    code = "from world.seeds import play; print(play(8).digest)"
    root = HERE.parents[1]
    number = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": number, "PYTHONPATH": f"{root / 'tests'}:{root}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert play(8).digest in told


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_that_once_broke_is_sound(path: Path) -> None:
    """The story of a planted bug still finds it."""
    story = read_story(path)
    outcome = story.play()
    assert not outcome.broken, "\n".join(outcome.lines[-30:])
    if story.bug:
        with planted(story.bug):
            assert kind_of(story.play().broken) == kind_of(story.broken)


def submitted(plot: Plot) -> Counter[str]:
    """How many of a plot's jobs came alone, as tasks, as members, and with a deadline."""
    found = Counter[str]()
    for act in plot.acts:
        if act.what in ("submit", "submit_group"):
            kind = "members" if "members" in act.facts else "tasks"
            of_many = act.facts.get(kind, 0)
            many = len(of_many) if kind == "members" and of_many else of_many
            found[kind if many else "alone"] += many or 1
            found["due"] += "due_s" in act.facts
    return found


@pytest.mark.parametrize("seed", [5, 14, 45])
def test_a_journal_is_played_as_the_plot_of_a_world(seed: int) -> None:
    """All that was accepted comes again, together where it came together; and so does trouble."""
    first = World(seed, draw(seed))
    first.run()
    told = first.disk.rows
    plot = plot_of(told, seed, trouble=False)
    again, jobs = submitted(plot), told.load().jobs
    arrays = [job.array for job in jobs if job.array is not None]
    assert again["alone"] == sum(job.array is None for job in jobs)
    assert again["tasks"] == sum(not array.members for array in arrays)
    assert again["members"] == sum(bool(array.members) for array in arrays)
    assert again["due"] == sum(bool(job.steps) for job in jobs)
    starts = [event for event in told.events(0, 100_000) if event.kind == "master_started"]
    kills = [act for act in plot.acts if act.what == "kill_master"]
    assert len(kills) == len(starts) - 1
    second = World(seed, plot)
    assert second.run().broken == ""
    assert len(second.disk.rows.load().jobs) > len(jobs) / 2


def test_answers_that_have_an_order() -> None:
    queued = JobState.QUEUED
    history = [
        Operation("submit", None, 1, 2, (1, 0, queued)),
        Operation("nice", 5, 3, 8, (3, 5, queued)),
        Operation("look", None, 4, 5, (2, 0, queued)),
        Operation("look", None, 6, 7, (3, 5, queued)),
    ]
    assert is_linearizable(history)


def test_an_answer_tells_of_another_edit_of_its_turn_and_of_its_own() -> None:
    queued = JobState.QUEUED
    submit = Operation("submit", None, 1, 2, (1, 0, queued))
    first, second = Operation("nice", 2, 3, 6), Operation("nice", 5, 4, 7)
    answers = [
        Operation("look", None, 3, 6, (3, 5, queued), first),
        Operation("look", None, 4, 7, (3, 5, queued), second),
    ]
    assert is_linearizable([submit, first, second, *answers])
    unheard = Operation("look", None, 3, 6, (1, 0, queued), first)
    assert not is_linearizable([submit, first, unheard])


def test_a_read_that_goes_back_has_no_order() -> None:
    queued = JobState.QUEUED
    history = [
        Operation("submit", None, 1, 2, (1, 0, queued)),
        Operation("nice", 5, 3, 4, (3, 5, queued)),
        Operation("look", None, 5, 6, (2, 0, queued)),
    ]
    assert not is_linearizable(history)
