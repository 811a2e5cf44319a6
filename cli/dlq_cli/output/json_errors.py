"""Errors as JSON on stdout, for programs that asked for JSON; people read the same words on
stderr. Of a command that leaves stdout to a job, each line of stderr is an object instead.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

_asked: list[bool] = []  # by the command of this process; empty: it did not
_lines: list[bool] = []  # the same of `ask_lines`


def ask(_context: click.Context, _option: click.Parameter, value: bool) -> bool:
    """Callback of `--json`: from now on errors are printed in JSON too."""
    if value:
        _asked[:] = [True]
    return value


def ask_lines(_context: click.Context, _option: click.Parameter, value: bool) -> bool:
    """Callback of a `--json` for news: every line on stderr is an object from now on."""
    if value:
        _lines[:] = [True]
    return value


def are_lines() -> bool:
    """Whether every line on stderr is an object."""
    return bool(_lines)


def forget() -> None:
    """Another command begins."""
    _asked.clear()
    _lines.clear()


def tell(what: str, more: Iterable[str], code: int) -> None:
    """Print one line of JSON, if JSON was asked for: the error, the hints and the exit code."""
    if not _asked and not _lines:
        return
    from dlq_cli.facts.common import document

    error = {"message": what, "hints": [line for line in more if line], "exit_code": code}
    click.echo(document({"error": error}), err=bool(_lines))
