"""Four kinds of pairs of answers: equal, equal but for values, explained, unexplained."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from differ.explained import EXPLAINED, LINES, Explained
from differ.pair import Answer

EQUAL, VALUES, TOLD, UNTOLD = "equal", "equal but for values", "explained", "unexplained"
_ORDERED = re.compile(r" (?:-S|--sort)\b")


class Verdict(NamedTuple):
    """The kind of a pair, and the entries that explain it."""

    kind: str
    by: Sequence[Explained] = ()


def judge(call: str, slurm: Answer, ours: Answer, *, raw_equal: bool) -> Verdict:
    """Of two normal answers. An entry counts only where it makes them more alike."""
    if raw_equal:
        return Verdict(EQUAL)
    if slurm == ours:
        return Verdict(VALUES)
    used: list[Explained] = []
    for entry in EXPLAINED:
        if not re.search(entry.calls, call):
            continue
        if entry.text == LINES and _ORDERED.search(call):
            continue
        left, right = _through(entry, slurm), _through(entry, ours)
        if (left, right) != (slurm, ours):
            used.append(entry)
            slurm, ours = left, right
        if slurm == ours:
            return Verdict(TOLD, used)
    return Verdict(UNTOLD, used)


def _through(entry: Explained, answer: Answer) -> Answer:
    if not entry.text:  # all of it
        return Answer(0, "", "")
    if entry.text == LINES:
        return answer._replace(out="\n".join(sorted(answer.out.splitlines())))
    pattern = re.compile(entry.text, re.MULTILINE)
    texts = {
        stream: pattern.sub(entry.instead, text)
        for stream, text in (("out", answer.out), ("err", answer.err))
        if entry.stream in ("", stream)
    }
    return answer._replace(**texts, code=0 if entry.code else answer.code)


def unused(verdicts: Sequence[Verdict]) -> list[Explained]:
    """Entries that explain nothing."""
    counts = Counter(entry.reason for verdict in verdicts for entry in verdict.by)
    return [entry for entry in EXPLAINED if not counts[entry.reason]]
