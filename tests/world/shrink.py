"""From a world that breaks to the shortest story that breaks in the same way.

Acts are left out, the cast and the weather become simpler, and draws become 0. Each change stays
only if the world still breaks by the same invariant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from world.cast.world import Outcome, World
from world.stage.acts import Act, Settings
from world.stage.plot import Plot
from world.stage.tape import Draws

T = TypeVar("T")
MOST_RUNS = 400


class Story(NamedTuple):
    """A world that can be played again: `bug` names the planted one that it finds, if any."""

    name: str
    broken: str
    bug: str
    seed: int
    plot: Plot
    draws: Draws

    def play(self) -> Outcome:
        """Without its bug, which is planted elsewhere."""
        return World(self.seed, self.plot, self.draws).run()


def kind_of(broken: str) -> str:
    """The invariant; of what never comes to rest what it is, without numbers; or the first
    words.
    """
    if " of calm " in broken:
        return re.sub(r"\d+", "", broken.partition(" of calm ")[2])
    return broken.partition(":")[0] if ":" in broken[:16] else " ".join(broken.split()[:3])


class Shrinking:
    """Call `run`."""

    def __init__(self, story: Story, most_runs: int = MOST_RUNS) -> None:
        self.story = story
        self.runs, self._most_runs = 0, most_runs
        self._kind = kind_of(story.broken)

    def run(self) -> Story:
        """The shortest that was found."""
        before = None
        while before != self.story and self.runs < self._most_runs:
            before = self.story
            self._acts()
            self._settings()
            self._draws()
        return self.story

    def _try(self, plot: Plot, draws: Draws) -> bool:
        """Keep this, if it still breaks."""
        if self.runs >= self._most_runs:
            return False
        self.runs += 1
        story = self.story._replace(plot=plot, draws=draws)
        outcome = story.play()
        if kind_of(outcome.broken) != self._kind:
            return False
        # What was drawn is what counts: draws that nobody took are left out.
        self.story = story._replace(draws=outcome.draws, broken=outcome.broken)
        return True

    def _acts(self) -> None:
        def keep(acts: Sequence[Act]) -> bool:
            return self._try(self.story.plot._replace(acts=tuple(acts)), self.story.draws)

        without_chunks(self.story.plot.acts, keep)

    def _settings(self) -> None:
        simple = Settings()
        for field in Settings._fields:
            settings = self.story.plot.settings
            if field == "busy_s":
                last_s = max((act.at_s for act in self.story.plot.acts), default=0.0)
                value: Any = round(last_s) + 1.0
            elif field == "gpus":
                value = settings.gpus[:-1] or settings.gpus
            else:
                value = getattr(simple, field)
            if value != getattr(settings, field):
                changed = settings._replace(**{field: value})
                self._try(self.story.plot._replace(settings=changed), self.story.draws)

    def _draws(self) -> None:
        for label in sorted(self.story.draws):
            rest = {name: it for name, it in self.story.draws.items() if name != label}
            if self._try(self.story.plot, rest):
                continue

            def keep(places: Sequence[tuple[int, int]], label: str = label) -> bool:
                draws = {**self.story.draws, label: dict(places)}
                return self._try(self.story.plot, draws)

            without_chunks(tuple(self.story.draws.get(label, {}).items()), keep, least=4)


def without_chunks(
    items: Sequence[T], keep: Callable[[Sequence[T]], bool], *, least: int = 1
) -> None:
    """Leave out ever smaller chunks, as long as `keep` says that it still breaks."""
    size = max(least, len(items) // 2)
    while True:
        for start in _starts_from_the_end(len(items), size):
            shorter = [*items[:start], *items[start + size :]]
            if len(shorter) < len(items) and keep(shorter):
                items = shorter
        if size <= least:
            return
        size = max(least, size // 2)


def _starts_from_the_end(count: int, size: int) -> Iterator[int]:
    yield from range((count - 1) // size * size if count else 0, -1, -size)


# --- files ----------------------------------------------------------------------------------------


def write_story(path: Path, story: Story) -> None:
    """As a file that a person can read, and a test can play."""
    plot = story.plot
    told = {
        "name": story.name,
        "broken": story.broken,
        "bug": story.bug,
        "seed": story.seed,
        "settings": _changed(plot.settings),
        "acts": [[act.at_s, act.what, dict(act.facts)] for act in plot.acts],
        "draws": {
            label: {str(at): drawn for at, drawn in places.items()}
            for label, places in story.draws.items()
        },
    }
    lines = [f" {json.dumps(key)}: {json.dumps(it)}" for key, it in told.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _changed(settings: Settings) -> Mapping[str, Any]:
    simple = Settings()._asdict()
    return {key: it for key, it in settings._asdict().items() if it != simple[key]}


def read_story(path: Path) -> Story:
    """The story of a file."""
    told = json.loads(path.read_text())
    settings = Settings(**told["settings"])
    settings = settings._replace(gpus=tuple(settings.gpus))
    acts = tuple(Act(at_s, what, facts) for at_s, what, facts in told["acts"])
    draws = {
        label: {int(at): drawn for at, drawn in places.items()}
        for label, places in told["draws"].items()
    }
    plot = Plot(settings, acts)
    return Story(told["name"], told["broken"], told["bug"], told["seed"], plot, draws)
