"""The order of squeue's lines: `-S P,-t,i`, where the last letter counts least."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_cli.lists.tasks import id_key
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.queue.fields import JOB_FIELDS

DEFAULT = "P,t,-p"
_BLANKS = " ,"


def in_order(jobs: Sequence[SeenJob], text: str) -> list[SeenJob]:
    """Sorted as asked, jobs that are alike by their ids. Letters without a field are passed over,
    as in Slurm.
    """
    ordered = sorted(jobs, key=_by_id)
    for letter, falling in reversed(list(_letters(text))):
        if letter == "p" or letter == "Q":
            ordered.sort(key=lambda job: job.priority, reverse=falling)
        elif letter in JOB_FIELDS.by_letter:
            ordered.sort(key=lambda job, letter=letter: _key(job, letter), reverse=falling)  # type: ignore[misc]
    return ordered


def _letters(text: str) -> list[tuple[str, bool]]:
    found, falling = [], False
    for char in text:
        if char in "-+":
            falling = char == "-"
        elif char not in _BLANKS:
            found.append((char, falling))
            falling = False
    return found


def _key(job: SeenJob, letter: str) -> tuple[float, str]:
    seconds = {"M": job.run_s, "l": job.limit_s or 0.0, "L": job.left_s or 0.0}
    if letter in seconds:
        return seconds[letter], ""
    if letter == "i":
        first, second = _by_id(job)
        return float(first), f"{second:09d}"
    text = JOB_FIELDS.by_letter[letter].text(job)
    return (float(text), "") if text.isdecimal() else (0.0, text)


def _by_id(job: SeenJob) -> tuple[int, int]:
    return id_key(job.job) if job.job.job_id.isdecimal() else (int(job.array_id), 1 << 31)
