"""The command lines of Slurm's programs: long and short options, with values or without."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays, unknown_option
from dlq_common.errors import InvalidRequest

_DIGITS = re.compile(r"\d+", re.ASCII)
_WIDTH = re.compile(r"-?\d+", re.ASCII)
_WIDEST = 1 << 16
_COMPONENT = re.compile(r"([0-9]+)\+([0-9]+)(?=$|\.)", re.ASCII)


def own_word(word: str) -> str:
    """A job's name as dlq takes it. Slurm writes `12+1` for a component of a heterogeneous job,
    which is `12_1` of a group here.
    """
    return _COMPONENT.sub(r"\1_\2", word, count=1)


class Grammar(NamedTuple):
    """The options of a program. A short letter stands for a long name."""

    program: str
    short: Mapping[str, str]
    valued: frozenset[str]
    switches: frozenset[str]
    refused: Mapping[str, str] = {}  # options of Slurm's that the stand-in does not do: why
    takes_words: bool = False  # beside options
    optional: frozenset[str] = frozenset()  # valued ones that do without
    same: Mapping[str, str] = {}  # further names of options
    usage: str = ""  # printed where a word is no option
    tries_help: bool = True  # an error about an option names --help
    joined: frozenset[str] = frozenset({"jobs"})  # given twice, both lists count


class SlurmWords(NamedTuple):
    """The given words: options by their long names (the last one counts), and the rest."""

    options: Mapping[str, str]
    rest: tuple[str, ...]

    def listed(self, name: str) -> list[str]:
        """The values of an option that takes a list with commas."""
        return [word.strip() for word in self.options.get(name, "").split(",") if word.strip()]

    def names_nothing(self, *lists: str) -> bool:
        """Whether one of these lists is given and empty. As in Slurm it means none, and not all: a
        script has it of a variable that is not set.
        """
        return any(name in self.options and not self.listed(name) for name in lists)


def read(grammar: Grammar, words: Sequence[str]) -> SlurmWords:
    """Options and the rest, in any order, as getopt reads them. SlurmSays for an unknown one,
    InvalidRequest for a refused one.
    """
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
    if rest and not grammar.takes_words:
        if grammar.usage:
            click.echo(grammar.usage)
        raise SlurmSays(f"{grammar.program}: error: Unrecognized option: {rest[0]}")
    for name, why in grammar.refused.items():
        if name in options:
            raise InvalidRequest(f"{grammar.program}: --{name}: {why}")
    return SlurmWords(options, tuple(rest))


def _enter_short(grammar: Grammar, options: dict[str, str], letters: str, left: list[str]) -> None:
    """`-hj 12`, `-j12`, `-o=%i`."""
    while letters:
        letter, letters = letters[0], letters[1:]
        name = grammar.short.get(letter)
        if name is None:
            raise unknown_option(grammar.program, f"-{letter}", tries_help=grammar.tries_help)
        if name in grammar.switches:
            options[name] = ""
            continue
        _enter(grammar, options, name, letters.removeprefix("=") or None, left, letter)
        return


def _enter(
    grammar: Grammar,
    options: dict[str, str],
    name: str,
    value: str | None,
    left: list[str],
    letter: str = "",
) -> None:
    name = _whole(grammar, name)
    if name in grammar.switches:
        options[name] = value or ""
        return
    if value is None and name in grammar.optional:
        value = left.pop(0) if left and not left[0].startswith("-") else ""
    if value is None:
        if not left:
            raise no_value(grammar, name, letter)
        value = left.pop(0)
    before = options.get(name)
    joined = name in grammar.joined and before  # submitit writes one -j for each
    options[name] = f"{before},{value}" if joined else value


def no_value(grammar: Grammar, name: str, letter: str) -> SlurmSays:
    """As getopt says it of `--format` and of `-o`."""
    what = (
        f"option requires an argument -- '{letter}'"
        if letter
        else f"option '--{name}' requires an argument"
    )
    help_line = [f'Try "{grammar.program} --help" for more information']
    return SlurmSays(f"{grammar.program}: {what}", *(help_line if grammar.tries_help else []))


def _whole(grammar: Grammar, name: str) -> str:
    """The option's full name: as getopt, a beginning will do where only one begins so."""
    known = grammar.valued | grammar.switches
    if name in known:
        return grammar.same.get(name, name)
    begun = {grammar.same.get(each, each) for each in known if name and each.startswith(name)}
    if len(begun) != 1:
        raise unknown_option(grammar.program, f"--{name}", tries_help=grammar.tries_help)
    return begun.pop()


def only_here(app: App, given: SlurmWords, grammar: Grammar) -> str:
    """The cluster's name where `-M` or SLURM_CLUSTERS asks for it (or for all), empty without.
    SlurmSays for another cluster's.
    """
    asked, said_by = given.listed("clusters"), "--cluster"
    if not asked and grammar.program in _BY_VARIABLE:
        asked, said_by = clusters_of_environment(), CLUSTERS
    if not asked:
        return ""
    own = app.connection().identity.cluster
    for name in asked:
        if name.lower() not in {"all", own.lower()}:
            raise no_cluster(grammar.program, name, said_by)
    return own


CLUSTERS = "SLURM_CLUSTERS"
_BY_VARIABLE = frozenset({"scancel", "sinfo", "squeue"})


def clusters_of_environment() -> list[str]:
    """The clusters that SLURM_CLUSTERS names."""
    return [name.strip() for name in os.environ.get(CLUSTERS, "").split(",") if name.strip()]


def no_cluster(program: str, name: str, said_by: str = "--cluster") -> SlurmSays:
    return SlurmSays(
        f"{program}: error: No cluster '{name[:40]}' known by database.",
        f"{program}: error: '{name[:40]}' can't be reached now, or it is an invalid entry for "
        f"{said_by}.  Use 'sacctmgr list clusters' to see available clusters.",
    )


def seconds_between(given: SlurmWords, program: str) -> int | None:
    """Of --iterate; None: once."""
    text = given.options.get("iterate")
    if text is None:
        return None
    every_s = whole_seconds(text)
    if not every_s:
        raise SlurmSays(f"{program}: error: --iterate={text[:40]}", "")
    return every_s


def whole_seconds(text: str) -> int | None:
    """A number of seconds, a century at most; None: it is none."""
    return int(text[:9]) if _DIGITS.fullmatch(text) else None


def column_width(text: str) -> int | None:
    """The width that a user gives a column, negative for the left side; None: it is none.

    A line that is wider than any terminal would take the memory of the host.
    """
    if not _WIDTH.fullmatch(text):
        return None
    return max(-_WIDEST, min(int(text[:8]), _WIDEST))


def ended(code: int) -> None:
    """End with an exit code other than 0."""
    if code:
        raise exit_codes.Ended(code)
