"""The ranks of a job whose main thread stands elsewhere than most, by their stacks.

A gang that hangs waits in one collective call, all but the rank that it waits for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# As `py-spy dump` prints: a line for each thread, then its frames, the innermost one first.
_THREAD = re.compile(r'Thread .*"MainThread"')
_FRAME = re.compile(r"    (\S.*)")
_PROCESS = re.compile(r"RANK (\S{1,20}):")
_MOST_TOLD = 8


def standing(rank: int, dump: str) -> dict[str, str]:
    """The innermost frame of each main thread in what `dlq stacks` shows of one rank, by the words
    for its process.
    """
    found: dict[str, str] = {}
    name, waits = f"rank {rank}", False
    for line in dump.splitlines():
        if process := _PROCESS.fullmatch(line):
            name, waits = f"process {process[1]}", False
        elif line.startswith("Thread "):
            waits = bool(_THREAD.match(line)) and name not in found
        elif waits and (frame := _FRAME.match(line)):
            found[name], waits = frame[1], False
    return found


def apart(places: Mapping[str, str]) -> str:
    """One line on the processes that stand elsewhere than most; "" for fewer than three."""
    if len(places) < 3:  # of two, neither is most
        return ""
    counts: dict[str, int] = {}
    for place in places.values():
        counts[place] = counts.get(place, 0) + 1
    most, count = max(counts.items(), key=lambda one: one[1])
    if count == len(places):
        return f"all {count} stand in {most}: none stands apart"
    if 2 * count <= len(places):
        return f"the {len(places)} stand in {len(counts)} places: none stands apart"
    others = [f"{name} stands in {place}" for name, place in places.items() if place != most]
    told = "; ".join(others[:_MOST_TOLD])
    more = f"; and {len(others) - _MOST_TOLD} more" if len(others) > _MOST_TOLD else ""
    return f"{told}{more}; the other {count} stand in {most}"
