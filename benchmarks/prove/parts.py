"""Campaigns in parts: each has seeds of its own, and the page tells the sum.

A full form may take longer than one session has. `--part 3/10` runs a tenth of it, from the third
lot of seeds, and keeps what was found beside the other parts. Each part has its commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.report import number

LEAST, MOST, RANGE = "least", "most", "range"
# A figure's name tells how parts are put together. All other numbers are counts.
RULES: tuple[tuple[str, str], ...] = (
    (r"first_seed|least|not_reached", LEAST),
    (r"worst|longest|most_|_within_s", MOST),
    (r"^seed$|^agents$|median|per_s$|percent|_after_s|hold_s|took_s", RANGE),
    (r"sizes|_mib$|_files|threads", RANGE),
)
# Lists: all that some part has, and only what every part has.
OF_ANY, OF_ALL = "broken_seeds", "states_not_reached"


@dataclass(frozen=True, slots=True)
class Part:
    """A run of a part of the full form."""

    first_seed: int
    seeds: int  # it has used so many, from the first one on
    size: int  # in kills, messages or seeds
    commit: str
    day: str
    took_s: int  # 0: not known
    found: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""  # the last lines of a command that failed

    @property
    def used(self) -> range:
        """Its seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)


class PartRefused(Exception):
    """A part that would count some seeds twice, or that nothing is known of."""


def with_part(parts: Iterable[Part], new: Part) -> list[Part]:
    """The parts in the order of their seeds; the new one replaces the same part of before. Raises
    PartRefused when it has some seeds of another one.
    """
    others = [each for each in parts if each.used != new.used]
    for each in others:
        if each.first_seed < new.used.stop and new.first_seed < each.used.stop:
            raise PartRefused(
                f"seeds {new.first_seed} to {new.used.stop - 1}: some are of the part from "
                f"{each.first_seed} to {each.used.stop - 1}"
            )
    return sorted([*others, new], key=lambda each: each.first_seed)


def told_part(path: Path, commit: str, day: str, took_s: int) -> Part:
    """The part of the seeds that another run left in its file of DLQ_PROOFS. One in which seeds
    broke has failed. `took_s`: of a part that does not say it. Raises PartRefused for a file that
    does not say which seeds.
    """
    found = [json.loads(line) for line in path.read_text().splitlines()]
    if len(found) != 1 or not {"first_seed", "seeds"} <= found[0].keys():
        raise PartRefused(f"{path} does not say its first seed, and how many it has run")
    told = found[0]
    took_s = round(told.pop("took_s", took_s))
    first, seeds = told["first_seed"], told["seeds"]
    broken = ", ".join(map(str, told.get("broken_seeds", ()))) or "some"
    failed = f"{told['broken']} of {seeds} seeds broke: {broken}" if told.get("broken") else ""
    return Part(first, seeds, seeds, commit, day, took_s, found, failed)


def summed(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The figures of all parts as one run would tell them. Rows of the same kind and the same words
    are one; a middle or a rate has no sum, and is told as a range.
    """
    rows = dict[tuple[object, ...], list[dict[str, Any]]]()
    for part in parts:
        for told in part.found:
            one = {name: value for name, value in told.items() if name != "took_s"}  # the part's
            words = [value for value in one.values() if isinstance(value, str)]
            rows.setdefault((*one, *words), []).append(one)
    return [_one_row(each) for each in rows.values()]


def _one_row(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: _together(name, [row[name] for row in rows]) for name in rows[0]}


def _together(name: str, values: Sequence[Any]) -> Any:
    if name == OF_ALL:
        return [one for one in values[0] if all(one in value for value in values)]
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    if name == OF_ANY:
        return sorted(flat)
    if all(each == flat[0] for each in flat) and isinstance(flat[0], str):
        return flat[0]
    rule = next((rule for words, rule in RULES if re.search(words, name)), "")
    if rule == LEAST:
        return min(flat)
    if rule == MOST:
        return max(flat)
    if rule == RANGE:
        least, most = min(flat), max(flat)
        return least if least == most else f"{number(least)} to {number(most)}"
    total = sum(flat)
    return round(total, 1) if isinstance(total, float) else total


def words_of(parts: Sequence[Part], whole: int, what: str) -> str:
    """How much of the whole there is, of which commits, and how long it took together."""
    well = [each for each in parts if not each.failed]
    if not well:
        return f"No part has ended well. Full form: {number(whole)} ({what})."
    size = sum(each.size for each in well)
    commits = dict[str, list[Part]]()
    for each in well:
        commits.setdefault(each.commit, []).append(each)
    told = ", ".join(
        f"{commit} ({number(sum(each.size for each in those))})"
        for commit, those in commits.items()
    )
    days = sorted({each.day for each in parts})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    known_s = sum(each.took_s for each in parts)
    lasted = f", {known_s // 60} min together" if all(each.took_s for each in parts) else ""
    parted = "part" if len(well) == 1 else "parts"
    so_far = "" if size >= whole else f" of {number(whole)} so far"
    failed = len(parts) - len(well)
    more = f" {failed} more failed, and their figures are in the sum." if failed else ""
    return (
        f"Run in {len(well)} {parted} on {when}: {number(size)}{so_far} ({what}), full "
        f"form{lasted}. Commits: {told}.{more}"
    )
