"""Host lists in Slurm's bracket notation: `gpu[01-08]` is eight names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from dlq_common.text.names import shown

# A longer list is a typing error or an attack, never a cluster.
MOST_HOSTS = 100_000

_HOSTNAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})", re.ASCII)
_TRAILING_DIGITS = re.compile(r"(.*?)(\d+)", re.ASCII)
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_BRACKETS_OR_COMMA = re.compile(r"\[[^\[\]]*\]|(,)")


def expand_hostlist(text: str) -> list[str]:
    """The host names of `gpu[01-08],login1`, in the order written, each once.

    Brackets hold numbers and ranges, keep leading zeros and may occur more than once in a word.
    ValueError for anything that is not a list of host names, or names more than MOST_HOSTS, a host
    that is named twice counting twice. Its cost grows with the text and with the names, no faster.
    """
    names: dict[str, None] = {}
    count = 0
    for word in split_outside_brackets(text.strip()):
        for name in _expand_word(word.strip()):
            names[name] = None
            count += 1
            if count > MOST_HOSTS:
                raise _too_many(text)
    return list(names)


def split_outside_brackets(text: str) -> list[str]:
    """The parts between commas, but not between those of `12_[0,2]`. Linear in the text."""
    parts, start = [], 0
    for found in _BRACKETS_OR_COMMA.finditer(text):
        if found[1]:
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]


def compress_hostlist(hosts: Iterable[str]) -> str:
    """The shortest bracket form of some host names, sorted; `expand_hostlist` reads it back.

    Only the last number of a name is folded, and only with others of the same width.
    """
    numbers: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for host in sorted(set(hosts)):
        found = _TRAILING_DIGITS.fullmatch(host)
        if found and len(found[2]) <= 18:
            numbers.setdefault((found[1], len(found[2])), []).append(int(found[2]))
        else:
            plain.append(host)
    folded = [_fold(prefix, width, sorted(found)) for (prefix, width), found in numbers.items()]
    return ",".join(sorted(plain + folded))


def _expand_word(word: str) -> Iterator[str]:
    pieces = _BRACKETS.split(word)
    # split() alternates text and bracket contents; text parts become one-element choices.
    choices, count = [], 1
    for odd, piece in enumerate(pieces):
        choices.append(_expand_ranges(piece, word) if odd % 2 else [piece])
        count *= len(choices[-1])
        if count > MOST_HOSTS:  # before the next brackets cost memory too
            raise _too_many(word)
    for combination in itertools.product(*choices):
        name = "".join(combination)
        if not _HOSTNAME.fullmatch(name):
            raise ValueError(f"{shown(word)} is not a host list: write gpu01 or gpu[01-08,12]")
        yield name


def _expand_ranges(ranges: str, word: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part.strip())
        if not found:
            raise ValueError(
                f"{shown(word)} is not a host list: [{shown(ranges)}] holds no numbers or ranges"
            )
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or int(last) - int(first) >= MOST_HOSTS:
            raise ValueError(f"{shown(word)} is not a host list: {part} is empty or too long")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
        if len(numbers) > MOST_HOSTS:
            raise _too_many(word)
    return numbers


def _too_many(text: str) -> ValueError:
    return ValueError(f"{shown(text)} names more than {MOST_HOSTS} hosts")


def _fold(prefix: str, width: int, numbers: list[int]) -> str:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}d}"
    inside = ",".join(
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
        for first, last in ranges
    )
    return f"{prefix}[{inside}]"
