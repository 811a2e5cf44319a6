"""A value together with the place where the user wrote it, and the error that names that place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from dlq_common.errors import InvalidRequest
from dlq_common.text.suggest import did_you_mean

LONGEST_WORDS = 800
MOST_PROBLEMS = 100  # that are told of one text


class Given(NamedTuple):
    """A value and its origin: `job.toml:7`, `train.sh:3`, `--gpus`, `default`."""

    value: object
    origin: str


# Dotted keys ("resources.cpus", "env.HOME") to the words of one source about them.
Layer = dict[str, Given]
ReadLayer = Mapping[str, Given]


class FromShell(Enum):
    """Stands for the value that a variable has in the submitter's shell."""

    VALUE = "from the shell"


class Notes(list[str]):
    """Hints for the user about a spec that is not wrong; printed to stderr."""


def wrong(origin: str, problem: str, *, hint: str = "") -> InvalidRequest:
    """The error for one place: `job.toml:7: unknown key 'gpu'; did you mean 'gpus'?`."""
    return InvalidRequest(f"{bounded(origin)}: {bounded(problem)}", field=origin, hint=hint)


def bounded(words: str) -> str:
    """A file may repeat a word of any length: its begin and its end are enough."""
    if len(words) <= LONGEST_WORDS:
        return words
    half = LONGEST_WORDS // 2
    return f"{words[:half]} ... {words[-half:]}"


@contextmanager
def collected(problems: list[InvalidRequest] | None) -> Iterator[None]:
    """Problems raised inside are kept in `problems`; without a list they are raised."""
    try:
        yield
    except InvalidRequest as error:
        if problems is None:
            raise
        problems.append(error)


def are_enough(problems: list[InvalidRequest] | None) -> bool:
    """Whether nobody reads further ones. A near word is sought for each, and a text of a megabyte
    has tens of thousands of lines.
    """
    return problems is not None and len(problems) >= MOST_PROBLEMS


def unknown_key(
    origin: str, word: str, known: Iterable[str], later: Iterable[str]
) -> InvalidRequest:
    """The error for a key or flag that does not exist, or not yet."""
    if word in later:
        return wrong(origin, f"{word!r} is not supported by this version of dlq")
    return wrong(origin, f"unknown key {word[:64]!r}{did_you_mean(word, known)}")
