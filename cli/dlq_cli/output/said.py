"""Errors in Slurm's own words, which programs look for: printed as they are, with its exit code."""

from __future__ import annotations

import os

import click

from dlq_common.errors import InvalidRequest


class SlurmSays(InvalidRequest):
    """Lines for stderr, each whole; a program that says them ends with `code`."""

    def __init__(self, *lines: str, code: int = 1) -> None:
        super().__init__("\n".join(lines))
        self.lines, self.code = lines, code


NO_SUCH_JOB = "slurm_load_jobs error: Invalid job id specified"


def unknown_option(program: str, word: str, *, tries_help: bool = True) -> SlurmSays:
    """As getopt says it, for `--bogus` and for a letter."""
    name = word.removeprefix("--")
    what = (
        f"unrecognized option '--{name}'"
        if word.startswith("--")
        else (f"invalid option -- '{word.lstrip('-')[:1]}'")
    )
    more = [f'Try "{program} --help" for more information'] if tries_help else []
    return SlurmSays(f"{program}: {what}", *more)


_CLEAR = "\r\x1b[K"
_refreshed = [False]  # whether the terminal's last line is one that is kept fresh


def refresh_line(line: str) -> None:
    """The last line of a terminal, instead of the one of before; empty: none. Other lines that are
    said take its place.
    """
    if line or _refreshed[0]:
        _refreshed[0] = bool(line)
        click.echo(_CLEAR + line, err=True, nl=False)


def say_line(line: str) -> None:
    """One line on stderr, also from the handler of a signal that came in the middle of another."""
    if _refreshed[0]:
        _refreshed[0] = False
        line = _CLEAR + line
    try:
        click.echo(line, err=True)
    except RuntimeError:  # Python lets nobody into a stream twice
        os.write(2, f"{line}\n".encode())
