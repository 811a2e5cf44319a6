"""The order of squeue's lines: `-S P,-t,i`, where the last letter counts least."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.queue.fields import JOB_FIELDS

DEFAULT = "P,t,-p"
_BLANKS = " ,"
_SORTABLE = frozenset("bBcCdDefgGhHiIjJlLmMnNOpPQStTuUvVz")  # of Slurm 22.05, measured


def in_order(jobs: Sequence[SeenJob], text: str) -> list[SeenJob]:
    """Sorted as asked, jobs that are alike by their ids. SlurmSays for a letter that sorts nothing,
    as in Slurm; some letters have no field here, and are passed over.
    """
    ordered = sorted(jobs, key=lambda job: job.number_key)
    for letter, falling in reversed(list(_letters(text))):
        if letter == "p" or letter == "Q":
            ordered.sort(key=lambda job: job.priority, reverse=falling)
        elif letter in JOB_FIELDS.by_letter:
            ordered.sort(key=_key(letter), reverse=falling)
    return ordered


def _letters(text: str) -> list[tuple[str, bool]]:
    found, falling = [], False
    for char in text:
        if char in "-+":
            falling = char == "-"
        elif char not in _BLANKS:
            if char not in _SORTABLE:
                raise SlurmSays(f"squeue: error: Invalid sort specification: {char}")
            found.append((char, falling))
            falling = False
    return found


_SECONDS: Mapping[str, Callable[[SeenJob], float | None]] = {
    "M": lambda job: job.run_s, "l": lambda job: job.limit_s, "L": lambda job: job.left_s,
}  # fmt: skip


def _key(letter: str) -> Callable[[SeenJob], tuple[float, str]]:
    """Numbers before texts; the function is for all lines, so it looks the letter up once."""
    if letter in _SECONDS:
        seconds = _SECONDS[letter]
        return lambda job: (seconds(job) or 0.0, "")
    if letter == "i":
        return _by_number
    text = JOB_FIELDS.by_letter[letter].text

    def key(job: SeenJob) -> tuple[float, str]:
        said = text(job)
        return (float(said), "") if said.isdecimal() else (0.0, said)

    return key


def _by_number(job: SeenJob) -> tuple[float, str]:
    first, second = job.number_key
    return float(first), f"{second:09d}"
