"""The command lines of Slurm's programs: long and short options, with values or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlq_cli import exit_codes
from dlq_common.errors import InvalidRequest
from dlq_common.suggest import did_you_mean


class Grammar(NamedTuple):
    """What a program takes. A short letter stands for a long name."""

    program: str
    short: Mapping[str, str]
    valued: frozenset[str]
    switches: frozenset[str]


class Words(NamedTuple):
    """What was given: options by their long names (the last word counts), and the rest."""

    options: Mapping[str, str]
    rest: tuple[str, ...]

    def listed(self, name: str) -> list[str]:
        """The values of an option that takes a list with commas."""
        return [word.strip() for word in self.options.get(name, "").split(",") if word.strip()]


def read(grammar: Grammar, words: Sequence[str]) -> Words:
    """Options and the rest, in any order, as getopt reads them. InvalidRequest for an unknown one."""
    options: dict[str, str] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        if not word.startswith("-") or word == "-":
            rest.append(word)
        elif word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            _enter(grammar, options, name, value if equals else None, left)
        else:
            _enter_short(grammar, options, word[1:], left)
    return Words(options, tuple(rest))


def _enter_short(grammar: Grammar, options: dict[str, str], letters: str, left: list[str]) -> None:
    """`-hj 12`, `-j12`, `-o=%i`."""
    while letters:
        letter, letters = letters[0], letters[1:]
        name = grammar.short.get(letter)
        if name is None:
            raise _unknown(grammar, f"-{letter}")
        if name in grammar.switches:
            options[name] = ""
            continue
        _enter(grammar, options, name, letters.removeprefix("=") or None, left)
        return


def _enter(
    grammar: Grammar, options: dict[str, str], name: str, value: str | None, left: list[str]
) -> None:
    if name in grammar.switches:
        options[name] = value or ""
        return
    if name not in grammar.valued:
        raise _unknown(grammar, f"--{name}")
    if value is None:
        if not left:
            raise InvalidRequest(f"{grammar.program}: --{name} needs a value")
        value = left.pop(0)
    before = options.get(name)
    joined = grammar.program == "sacct" and name == "jobs" and before
    options[name] = f"{before},{value}" if joined else value


def _unknown(grammar: Grammar, word: str) -> InvalidRequest:
    known = [f"--{name}" for name in sorted(grammar.valued | grammar.switches)]
    return InvalidRequest(
        f"{grammar.program}: dlq's stand-in knows no {word}{did_you_mean(word, known)}",
        hint="options: " + " ".join(known),
    )


def ended(code: int) -> None:
    """End with an exit code other than 0."""
    if code:
        raise exit_codes.Ended(code)
