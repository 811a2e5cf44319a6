"""Many worlds, on all cores: which broke, and which interesting states none has reached."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import NamedTuple

import structlog

from world.bugs import planted
from world.cast.world import Outcome, World
from world.shrink import MOST_RUNS, Shrinking, Story
from world.stage.plot import draw

# Interesting states. A change of the world after which no seed reaches one of them is a loss.
SOMETIMES = (
    "a master died between its commit and its answer",
    "a master ended: disk I/O error",
    "a master ended: database or disk is full",
    "a master ended: it does not start: a stored body does not match its checksum",
    "a master ended: it does not start: disk I/O error in a read",
    "a shim ended its job when the hold was over",
    "a launch could not be prepared",
    "GPUs were not free at once",
    "a request was repeated",
    "a call was not answered",
    "an answer was lost",
    "journal: attempt_node_silent",
    "journal: attempt_node_lost",
    "journal: attempt_preempted",
    "journal: attempt_cancelled",
    "journal: attempt_start_failed",
    "journal: barrier_opened",
    "journal: job_requeued",
    "journal: job_held",
    "journal: job_promoted",
    "journal: promise_made",
    "journal: node_lost",
    "journal: attempt_returned_running",
    "journal: barrier_timeout",
    "journal: job_poisoned",
    "journal: command_refused",
    "journal: rank_told_late",
    "journal: first_failure_corrected",
    "a master took the lead",
    "a master lost the lead",
    "a master that may not lead said nothing",
    "a standby led from what it had built ahead",
    "a standby led from its rows",
    "a standby that leads had to read everything",
    "a launch took very long to prepare",
    "a server that has not heard of the leader was promoted",
    "a server that lacks turns was promoted",
    "journal: requeues_frozen",
    "a group started",
    "a group started again",
    "GPUs of a gang were kept",
    "GPUs of a group were kept",
    "a claim ran out",
    "an agent was killed at an await",
    "a client was killed during a call",
    "a client that was killed asked again",
    "a client that was killed forgot",
    "a call ended with its caller",
    "a shim was killed at a start",
    "a shim was killed under its job",
)


class Run(NamedTuple):
    """What many seeds have shown."""

    seeds: int
    virtual_s: float
    steps: int
    broken: tuple[tuple[int, str], ...]
    seen: Counter[str]

    def unseen(self) -> list[str]:
        """The interesting states that no seed has reached."""
        return [state for state in SOMETIMES if not self.seen[state]]


@contextmanager
def quiet() -> Iterator[None]:
    """The daemons' logs say nothing: they would cost more than what they tell of."""
    before = structlog.get_config()
    logger = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=logger)
    try:
        yield
    finally:
        structlog.configure(**before)


def play(seed: int) -> Outcome:
    """The world of a seed."""
    with quiet():
        return World(seed, draw(seed)).run()


def _briefly(seed: int) -> Outcome:
    return play(seed)._replace(lines=(), draws={})


def summed(outcomes: Iterable[Outcome]) -> Run:
    """All of them together."""
    seeds, virtual_s, steps, seen = 0, 0.0, 0, Counter[str]()
    broken: list[tuple[int, str]] = []
    for outcome in outcomes:
        seeds += 1
        virtual_s += outcome.virtual_s
        steps += outcome.steps
        seen += outcome.seen
        if outcome.broken:
            broken.append((outcome.seed, outcome.broken))
    return Run(seeds, virtual_s, steps, tuple(broken), seen)


class Shrunk(NamedTuple):
    """The shortest story of a seed that breaks, as it is told, and how many runs that took."""

    story: Story
    lines: tuple[str, ...]
    runs: int


def shrunk_seed(seed: int, bug: str = "", most_runs: int = MOST_RUNS) -> Shrunk | None:
    """The story of this seed; None: it does not break. `bug`: the planted one that it finds."""
    outcome = play(seed)
    if not outcome.broken:
        return None
    name = bug.replace("_", "-") or f"seed-{seed}"
    story = Story(name, outcome.broken, bug, seed, draw(seed), outcome.draws)
    with quiet():
        shrinking = Shrinking(story, most_runs)
        shortest = shrinking.run()
        return Shrunk(shortest, shortest.play().lines, shrinking.runs)


class Hunt(NamedTuple):
    """How many seeds it took to find a planted bug, and what broke; 0: none did."""

    bug: str
    seeds: int
    broken: str
    seed: int


def hunt(bug: str, first: int = 1, most: int = 200) -> Hunt:
    """Play seeds with a planted bug until one breaks."""
    for number in range(most):
        with planted(bug):
            outcome = play(first + number)
        if outcome.broken:
            return Hunt(bug, number + 1, outcome.broken, outcome.seed)
    return Hunt(bug, 0, "", 0)


def hunt_all(bugs: Sequence[str], first: int, most: int, workers: int) -> Iterator[Hunt]:
    """Every one of them, on several cores, as they are found."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        hunts = [pool.submit(hunt, bug, first, most) for bug in bugs]
        for done in as_completed(hunts):
            yield done.result()


def run(first: int, count: int, workers: int = 2) -> Run:
    """Many seeds on several cores."""
    seeds = range(first, first + count)
    if workers <= 1:
        return summed(_briefly(seed) for seed in seeds)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return summed(pool.map(_briefly, seeds, chunksize=5))
