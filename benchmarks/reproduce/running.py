"""Runs the parts of cases, as many at once as there are workers, and tells how far it is."""

from __future__ import annotations

import gc
import os
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, NamedTuple

from benchmarks.reproduce.case import Case, Words
from benchmarks.reproduce.kept import Kept, Result
from benchmarks.reproduce.sources import Key, changed_since, key
from dlq_simulator.command import COLLECT_AFTER

_SHOWN = 70  # characters of a part's words
# Two processes share two cores: a numeric library that starts threads of its own slows both.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Part(NamedTuple):
    """One thing to compute, and the CPU time that it probably takes."""

    case: str
    run: Callable[..., Any]
    words: Words
    key: Key
    cost_s: float


class SourcesChangedError(Exception):
    """A source that decides was written while parts were computed."""


class Failed(NamedTuple):
    """A part that raised, with its words and the error."""

    part: Part
    error: str


def plan(cases: Iterable[Case], full: bool, kept: Kept) -> dict[Key, Part]:
    """Every part once, whichever cases share it."""
    found: dict[Key, Part] = {}
    for case in cases:
        words, inputs = case.parts_of(full), case.inputs_of(full)
        share_s = case.form(full).cpu_s / max(1, len(words))
        for each in words:
            own = key(case.run, each, inputs)
            cost_s = kept.cost_s(own)
            if own not in found:
                found[own] = Part(
                    case.name, case.run, each, own, share_s if cost_s is None else cost_s
                )
    return found


def run_parts(
    parts: Sequence[Part], kept: Kept, workers: int, say: Callable[[str], None]
) -> list[Failed]:
    """Compute and keep them all, the dearest first. Parts that raise are told at the end.

    A part is kept before it is counted. So a run that is killed loses only the parts in work.
    Nothing is kept any more once a source changed: SourcesChangedError.
    """
    begun_s, modules = time.time(), {part.run.__module__ for part in parts}
    todo = sorted(parts, key=lambda part: -part.cost_s)
    told = _Progress(todo, workers, say)
    failed = []
    for part, result in _results(todo, workers):
        if isinstance(result, str):
            failed.append(Failed(part, result))
        elif changed := changed_since(modules, begun_s):
            raise SourcesChangedError(changed[0])
        else:
            kept.put(part.key, result)
        told.ended(part, result)
    return failed


def computed(run: Callable[..., Any], words: Words) -> Result:
    """One part in this process. Its CPU time counts all threads."""
    gc.set_threshold(COLLECT_AFTER)  # as `dlq simulate` does
    begun_s = time.process_time()
    value = run(**words)
    return Result(value, time.process_time() - begun_s)


def _results(todo: Sequence[Part], workers: int) -> Iterator[tuple[Part, Result | str]]:
    """Each as soon as it is there; the error as words where a part raised."""
    for name in ONE_THREAD:
        os.environ[name] = "1"
    if workers == 1:
        for part in todo:
            try:
                yield part, computed(part.run, part.words)
            except Exception as error:  # noqa: BLE001  another part may still be well
                yield part, _said(error)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        asked: dict[Future[Result], Part] = {
            pool.submit(computed, part.run, dict(part.words)): part for part in todo
        }
        left = set(asked)
        while left:
            ended, left = wait(left, return_when=FIRST_COMPLETED)
            for future in ended:
                raised = future.exception()
                if isinstance(raised, BrokenProcessPool):
                    raise raised
                yield asked[future], _said(raised) if raised else future.result()


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class _Progress:
    """A line for each part that ends, with the time that is left at the pace so far."""

    def __init__(self, todo: Sequence[Part], workers: int, say: Callable[[str], None]) -> None:
        self._left_s = sum(part.cost_s for part in todo)
        self._count, self._workers, self._say = len(todo), workers, say
        self._ended, self._cost_s, self._cpu_s = 0, 0.0, 0.0

    def ended(self, part: Part, result: Result | str) -> None:
        """Tell it."""
        self._ended += 1
        self._left_s -= part.cost_s
        shown = " ".join(map(str, part.words.values()))
        line = f"{self._ended} of {self._count}: {part.case}: {textwrap.shorten(shown, _SHOWN)}"
        if isinstance(result, str):
            self._say(f"{line}: FAILED: {result}")
            return
        self._cost_s += part.cost_s
        self._cpu_s += result.cpu_s
        pace = self._cpu_s / self._cost_s if self._cost_s else 1.0
        left_min = pace * max(0.0, self._left_s) / self._workers / 60
        self._say(f"{line}: {result.cpu_s:.1f} s of CPU; about {left_min:.1f} min left")
