"""The indexes of an array's tasks as Slurm 22.05 writes them: `0-3,7%2`, `0-20:5`, cut at 64
characters.

dlq's own form has steps within a list (`0-3,10-30:10`), which programs for Slurm cannot read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

_STEP_SPAN, _STEP_COUNT = 10, 5  # arrays without more are never written with a step
_LONGEST = 64  # characters, with the end of the text
_MOST_LONGEST = 4096
_DOTS = "..."


def slurm_indexes(indexes: Sequence[int], concurrent: int = 0) -> str:
    """Rising indexes, and how many may run at a time (0: all)."""
    return (_stepped(indexes) or _cut(_ranges(indexes))) + (f"%{concurrent}" if concurrent else "")


def _stepped(indexes: Sequence[int]) -> str:
    """`0-20:5` of indexes with one step above 1 between them; empty: they have none."""
    first, last = indexes[0], indexes[-1]
    if last - first <= _STEP_SPAN or len(indexes) <= _STEP_COUNT or indexes[1] == first + 1:
        return ""
    step = indexes[1] - first
    even = (last - first) % step == 0 and list(indexes) == list(range(first, last + 1, step))
    return f"{first}-{last}:{step}" if even else ""


def _ranges(indexes: Sequence[int]) -> str:
    parts: list[tuple[int, int]] = []
    for index in indexes:
        if parts and index == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], index)
        else:
            parts.append((index, index))
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)


def _cut(text: str) -> str:
    """As long as SLURM_BITSTR_LEN says; 0: the whole text."""
    word = os.environ.get("SLURM_BITSTR_LEN", "")
    most = min(int(word), _MOST_LONGEST) if word.isdecimal() and len(word) < 10 else _LONGEST
    return text if not most or len(text) < most - 2 else text[: most - 4] + _DOTS
