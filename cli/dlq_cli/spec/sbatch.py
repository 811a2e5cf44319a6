"""The options on the #SBATCH lines of a script, by their long names and with their lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlq_cli.spec.given import wrong

PREFIX = "#SBATCH"

# Slurm's short options; those that take no value are in SWITCHES by their long names.
SHORT = {
    "-A": "--account", "-a": "--array", "-B": "--extra-node-info", "-b": "--begin",
    "-C": "--constraint", "-c": "--cpus-per-task", "-D": "--chdir", "-d": "--dependency",
    "-e": "--error", "-F": "--nodefile", "-G": "--gpus", "-H": "--hold", "-i": "--input",
    "-J": "--job-name", "-k": "--no-kill", "-L": "--licenses", "-M": "--clusters", "-m":
    "--distribution", "-N": "--nodes", "-n": "--ntasks", "-O": "--overcommit", "-o": "--output",
    "-p": "--partition", "-Q": "--quiet", "-q": "--qos", "-S": "--core-spec", "-s":
    "--oversubscribe", "-t": "--time", "-v": "--verbose", "-W": "--wait", "-w": "--nodelist",
    "-x": "--exclude",
}  # fmt: skip

# They take no value, or one only behind `=`.
SWITCHES = frozenset(
    {
        "--contiguous", "--exclusive", "--get-user-env", "--hold", "--ignore-pbs",
        "--kill-on-invalid-dep", "--nice", "--no-kill", "--no-requeue", "--overcommit",
        "--oversubscribe", "--parsable", "--propagate", "--quiet", "--reboot", "--requeue",
        "--spread-job", "--stepmgr", "--test-only", "--use-min-nodes", "--verbose", "--wait",
    }
)  # fmt: skip


class Option(NamedTuple):
    """One option as it was written."""

    name: str  # long
    value: str  # empty: none
    line: int
    written: str


def read_options(text: str, source: str) -> Iterator[Option]:
    """The options in the order written. Like Slurm it reads up to the first command.

    InvalidRequest names the line that is no option, or that lacks a value.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line and not line.startswith("#") and not line.isspace():
            return
        if is_directive(line):
            yield from _options(line.removeprefix(PREFIX), number, f"{source}:{number}")


def read_words(words: Sequence[str], origin: str) -> tuple[list[Option], list[str]]:
    """The options of sbatch's own command line, on line 0, and what stands behind them.

    InvalidRequest as `read_options`.
    """
    left = iter(words)
    found: list[Option] = []
    for word in left:
        if word == "--":
            return found, list(left)
        if not word.startswith("-") or word == "-":
            return found, [word, *left]
        found.append(_option(word, left, 0, origin))
    return found, []


def is_directive(line: str) -> bool:
    """Whether this is an #SBATCH line."""
    rest = line.removeprefix(PREFIX)
    return line.startswith(PREFIX) and (not rest or rest[0].isspace())


def _options(text: str, number: int, origin: str) -> Iterator[Option]:
    left = _words(text, origin)
    for word in left:
        yield _option(word, left, number, origin)


def _option(word: str, left: Iterator[str], number: int, origin: str) -> Option:
    name, value, written = _split(word, origin)
    if value is None and name in SWITCHES:
        value = ""
    elif value is None:
        value = next(left, None)
        if value is None:
            raise wrong(origin, f"{name} needs a value")
        written += f" {value}"
    return Option(name, value, number, written)


def _words(text: str, origin: str) -> Iterator[str]:
    """Words as a shell has them, up to one that begins a comment; `#` inside a word is a letter."""
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        for word in lexer:
            if word.startswith("#"):
                return
            yield word
    except ValueError as error:
        raise wrong(origin, f"quotes do not match: {error}") from None


def _split(word: str, origin: str) -> tuple[str, str | None, str]:
    if word.startswith("--") and len(word) > 2:
        name, equals, value = word.partition("=")
        return _respelled(name), value if equals else None, word
    if word.startswith("-") and word[:2] in SHORT:
        rest = word[2:].removeprefix("=")
        return SHORT[word[:2]], rest or None, word
    raise wrong(origin, f"{word[:64]!r} is not an option of sbatch")


def _respelled(name: str) -> str:
    """Slurm's other words for the same."""
    return {"--tasks": "--ntasks", "--workdir": "--chdir", "--share": "--oversubscribe"}.get(
        name, name
    )
