"""Writes the generated blocks of a page between their markers; the prose around them stays.

    <!-- reproduce: stamp -->           the commit, the day, the form and the CPU minutes
    <!-- reproduce: aryl-table-5 -->    the table of a case
    <!-- reproduce: end -->             ends either

A page is written whole or not at all: all its tables are of one form and of one commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import ROOT
from benchmarks.reproduce.case import Case, Done
from benchmarks.reproduce.sources import Key
from benchmarks.reproduce.tables import markdown
from benchmarks.support.drawing import can_draw, draw

PAGES = ROOT / "docs" / "policies" / "reproduction"
STAMP, END = "stamp", "end"
BLOCK = re.compile(r"<!-- reproduce: (\S+) -->\n(.*?)<!-- reproduce: end -->", re.DOTALL)
FORMS = {False: "short form", True: "whole form"}


class MixedPageError(ValueError):
    """Results of two commits or forms were to stand on one page."""


class Stamp(NamedTuple):
    """The origin that all tables of a page have in common."""

    commit: str
    day: str
    full: bool


class Outcome(NamedTuple):
    """All parts of a case, from the commit and in the form that its stamp says.

    `missing`: an input that is not here; the page says so in the place of the table.
    """

    case: Case
    stamp: Stamp
    done: Sequence[Done]
    took_s: Mapping[Key, float]  # CPU time of each part, which another case may share
    missing: str = ""


def markers(text: str) -> list[str]:
    """The cases that a page has a place for, in its order. ValueError where a marker does not
    end.
    """
    found = [name for name, _ in BLOCK.findall(text)]
    if text.count("<!-- reproduce: ") != 2 * len(found):
        raise ValueError("a marker of a generated block has no end, or an end no begin")
    if found and found.count(STAMP) != 1:
        raise ValueError("a page with generated blocks has one stamp")
    return [name for name in found if name != STAMP]


def page_text(text: str, outcomes: Sequence[Outcome], say: Callable[[str], None] = print) -> str:
    """The page with fresh blocks. MixedPageError where its outcomes are not of one commit and
    form; ValueError where they are not those of its markers.
    """
    stamps = {outcome.stamp for outcome in outcomes}
    if len(stamps) > 1:
        raise MixedPageError(f"these were to stand on one page: {sorted(stamps)}")
    blocks: Mapping[str, Outcome] = {outcome.case.name: outcome for outcome in outcomes}
    if sorted(blocks) != sorted(markers(text)):
        raise ValueError(f"markers are {markers(text)}, cases are {sorted(blocks)}")

    def fresh(found: re.Match[str]) -> str:
        name = found[1]
        inner = stamp_line(outcomes) if name == STAMP else _block(blocks[name], say)
        return f"<!-- reproduce: {name} -->\n{inner}\n<!-- reproduce: end -->"

    return BLOCK.sub(fresh, text)


def write_page(
    page: str, outcomes: Sequence[Outcome], folder: Path = PAGES, say: Callable[[str], None] = print
) -> None:
    """The page and its pictures into `folder`; the prose is that of the documentation."""
    text = page_text((PAGES / page).read_text(), outcomes, say)
    folder.mkdir(parents=True, exist_ok=True)
    for outcome in outcomes:
        if outcome.case.figure is not None and not outcome.missing:
            draw(folder / picture(outcome.case), outcome.case.figure.plots(outcome.done))
    (folder / page).write_text(text)


def stamp_line(outcomes: Sequence[Outcome]) -> str:
    """The sentence of a page about its tables."""
    stamp = outcomes[0].stamp
    once: dict[Key, float] = {}
    for outcome in outcomes:
        once.update(outcome.took_s)
    minutes = sum(once.values()) / 60
    return (
        f"*`make reproduce` made what is between its markers from commit {stamp.commit} on "
        f"{stamp.day}: {FORMS[stamp.full]}, {minutes:.2f} CPU minutes.*"
    )


def picture(case: Case) -> str:
    """The file of its figure, beside the page."""
    return f"{case.name}.svg"


def _block(outcome: Outcome, say: Callable[[str], None]) -> str:
    case, form = outcome.case, outcome.case.form(outcome.stamp.full)
    lines = [case.about]
    if case.also_fitted:
        lines.append(f"**In-sample** on {', '.join(case.also_fitted)}. {case.in_sample}".rstrip())
    if outcome.missing:
        return "\n".join([*lines, f"Left out: {outcome.missing}."])
    seeds = "seed" if form.seeds == 1 else "seeds"
    told = [f"{name} {value}" for name, value in form.words.items()]
    told.append(f"{seeds} {', '.join(map(str, case.seeds[: form.seeds]))}")
    judged, fitted = ", ".join(case.judged_on), ", ".join(case.fitted_on) or "no jobs"
    lines.append(
        f"(`make reproduce ONLY={case.name}`: {', '.join(told)}; judged on {judged}; "
        f"constants chosen on {fitted}; "
        f"{sum(outcome.took_s.values()) / 60:.2f} CPU minutes.)"
    )
    written = markdown(case, case.table(outcome.done))
    for row in written.unexplained:
        say(f"{case.name}: {row}: differs without a sentence")
    drawn = _figure(outcome) if case.figure is not None else []
    return "\n".join([*lines, "", written.text, *drawn])


def _figure(outcome: Outcome) -> list[str]:
    """The picture, and its caption with the commit."""
    case, stamp = outcome.case, outcome.stamp
    if case.figure is None or not can_draw():
        return ["", "The figure is left out: matplotlib is not installed."]
    plots = case.figure.plots(outcome.done)
    crosses = " Crosses are figures that the paper prints." if any(p.printed for p in plots) else ""
    caption = case.figure.caption
    told = f"{caption}{crosses} Commit {stamp.commit}, {FORMS[stamp.full]}."
    return ["", f"![{caption}]({picture(case)})", "", f"*{told}*"]
