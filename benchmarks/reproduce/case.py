"""A case: one table of a page, with its computation, its inputs and the paper's figures.

A case's `run` computes one part from plain words, and is what the cache knows it by. It lives in a
module of `runs/` or of `benchmarks/papers`, apart from the sentences: a better sentence computes
nothing anew. Two cases with the same parts share their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks import ROOT
from benchmarks.reproduce.logs import path_of
from benchmarks.support.drawing import Plot

Words = Mapping[str, Any]  # arguments of a part: plain values that JSON can hold
Printed = Mapping[str, Mapping[str, float]]  # row -> column -> the paper's figure
Cell = float | str | None
NONE_PRINTED: Printed = MappingProxyType({})
_NO_WORDS: Words = MappingProxyType({})


class Form(NamedTuple):
    """The size of a run: its CPU time as last measured, seeds, and further words for `parts`."""

    cpu_s: float
    seeds: int = 1
    words: Words = _NO_WORDS


class Done(NamedTuple):
    """A part with its result."""

    words: Words
    value: Any


class Table(NamedTuple):
    """Figures by row and column. A column says how its numbers look, as a format."""

    columns: Mapping[str, str]
    rows: Mapping[str, Mapping[str, Cell]]


class Figure(NamedTuple):
    """A picture beside a table: its caption, and its plots from the same results."""

    caption: str
    plots: Callable[[Sequence[Done]], Sequence[Plot]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One generated table, with its figure if there is one.

    `parts(seeds, **form.words)` gives the words of each part. `run(**words)` computes it, in any
    process. `paper` has the printed figures by row and column, or is `NONE_PRINTED`. `differs` has
    a sentence for each row that is off by more than a tenth. `judged_on` and `fitted_on` name sets
    of `job_sets.SETS`. A method whose constants are all the paper's is fitted on nothing.
    """

    name: str
    page: str  # a file of docs/policies/reproduction
    section: str  # the heading that the table stands under
    about: str  # a sentence before the table
    rows: str  # what the rows are: the head of the first column
    run: Callable[..., Any]
    parts: Callable[..., Iterable[Words]]
    table: Callable[[Sequence[Done]], Table]
    seeds: tuple[int, ...]
    short: Form
    full: Form
    paper: Printed
    judged_on: tuple[str, ...]  # the jobs of the table
    fitted_on: tuple[str, ...]  # the jobs that constants of its methods were chosen on
    beside: str = "paper"  # what the ratio is to
    inputs: tuple[str, ...] = ()  # files that `run` reads, from the root of the repository
    modules: tuple[str, ...] = ()  # Python modules that are no part of dlq
    logs: tuple[str, ...] = ()  # words of `logs.LOGS` that `run` reads
    differs: Mapping[str, str] = field(default_factory=dict)
    in_sample: str = ""  # a sentence on how the constants were chosen on these very jobs
    figure: Figure | None = None

    @property
    def also_fitted(self) -> tuple[str, ...]:
        """The sets on which the results are in-sample."""
        return tuple(name for name in self.judged_on if name in self.fitted_on)

    def inputs_of(self, full: bool) -> tuple[str, ...]:
        """The files that a form reads; FileNotFoundError, in words for the page, without one."""
        for name in self.inputs:
            if not (ROOT / name).exists():
                raise FileNotFoundError(f"`{name}` is not there")
        for name in self.modules:
            if find_spec(name) is None:
                raise FileNotFoundError(f"the Python module `{name}` is not installed")
        return (*self.inputs, *(str(path_of(name, full)) for name in self.logs))

    def form(self, full: bool) -> Form:
        """The whole, or the short form."""
        return self.full if full else self.short

    def parts_of(self, full: bool) -> list[Words]:
        """The words of each part."""
        form = self.form(full)
        return list(self.parts(self.seeds[: form.seeds], **form.words))
