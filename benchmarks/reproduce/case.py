"""A case: one table of a page, with its computation, its inputs and the paper's figures.

A case's `run` computes one part from plain words, and is what the cache knows it by. It lives in a
module of `runs/` or of `benchmarks/papers`, apart from the sentences: a better sentence computes
nothing anew. Two cases with the same parts share their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One generated table, with its figure if there is one.

    `parts(seeds, **form.words)` gives the words of each part. `run(**words)` computes it, in any
    process. `paper` has the printed figures by row and column, or is `NONE_PRINTED`. `differs` has
    a sentence for each row that is off by more than a tenth.
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
    beside: str = "paper"  # what the ratio is to
    inputs: tuple[str, ...] = ()  # files that `run` reads, from the root of the repository
    differs: Mapping[str, str] = field(default_factory=dict)
    in_sample: str = ""  # a sentence, where a constant was chosen on these very jobs
    fitted_seeds: tuple[int, ...] = ()  # other seeds, on which constants were chosen
    plots: Callable[[Sequence[Done]], Sequence[Plot]] | None = None

    def form(self, full: bool) -> Form:
        """The whole, or the short form."""
        return self.full if full else self.short

    def parts_of(self, full: bool) -> list[Words]:
        """The words of each part."""
        form = self.form(full)
        return list(self.parts(self.seeds[: form.seeds], **form.words))
