"""Slurm's lists of hosts: `node-[01-03,7],login` and back."""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Tuple

MOST_HOSTS = 100_000

_GROUP = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NUMBERED = re.compile(r"(.*?)([0-9]+)$")


def expand(text: str) -> List[str]:
    """The hosts of a list in their order. ValueError for a text that is no list."""
    hosts: List[str] = []
    for part in _parts(text):
        hosts += _expand_part(part)
        if len(hosts) > MOST_HOSTS:
            raise ValueError("more than %d hosts" % MOST_HOSTS)
    return hosts


def compress(hosts: Iterable[str]) -> str:
    """A list of hosts in Slurm's short form; hosts with the same prefix become one group, in the
    order in which the prefixes come.
    """
    groups: Dict[Tuple[str, int], List[int]] = {}
    for host in hosts:
        found = _NUMBERED.match(host)
        if found:
            groups.setdefault((found[1], len(found[2])), []).append(int(found[2]))
        else:
            groups.setdefault((host, 0), [])
    return ",".join(_group(prefix, width, numbers) for (prefix, width), numbers in groups.items())


def _parts(text: str) -> List[str]:
    """Split at the commas outside brackets."""
    parts, depth, word = [], 0, ""
    for char in text.strip():
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            raise ValueError("brackets do not match in %r" % text[:80])
        if char == "," and not depth:
            parts.append(word)
            word = ""
        else:
            word += char
    if depth:
        raise ValueError("brackets do not match in %r" % text[:80])
    return [part for part in (*parts, word) if part]


def _expand_part(part: str) -> List[str]:
    names = [""]
    position = 0
    while position < len(part):
        found = _GROUP.match(part, position)
        if not found or found.end() == position:
            raise ValueError("%r is no list of hosts" % part[:80])
        position = found.end()
        numbers = [""] if found[2] is None else list(_numbers(found[2]))
        if len(names) * len(numbers) > MOST_HOSTS:
            raise ValueError("more than %d hosts" % MOST_HOSTS)
        names = [name + found[1] + number for name in names for number in numbers]
    return names


def _numbers(text: str) -> Iterable[str]:
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if not found:
            raise ValueError("%r is no range of hosts" % part[:80])
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first >= MOST_HOSTS:
            raise ValueError("%r is no range of hosts" % part[:80])
        for number in range(first, last + 1):
            yield "%0*d" % (len(found[1]), number)


def _group(prefix: str, width: int, numbers: List[int]) -> str:
    if not width:
        return prefix
    runs: List[List[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1 and len("%0*d" % (width, number)) == width:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [
        "%0*d" % (width, first) + ("-%0*d" % (width, last) if last > first else "")
        for first, last in runs
    ]
    return (
        "%s[%s]" % (prefix, ",".join(words))
        if len(words) > 1 or "-" in words[0]
        else prefix + words[0]
    )
