"""Errors as JSON on stdout, for programs that asked for JSON; people read the same words on
stderr.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

_asked: list[bool] = []  # by the command of this process; empty: it did not


def ask(_context: click.Context, _option: click.Parameter, value: bool) -> bool:
    """Callback of `--json`: from now on errors are printed in JSON too."""
    if value:
        _asked[:] = [True]
    return value


def forget() -> None:
    """Another command begins."""
    _asked.clear()


def tell(what: str, more: Iterable[str], code: int) -> None:
    """Print one line of JSON on stdout, if JSON was asked for: the error, the hints and the exit
    code.
    """
    if not _asked:
        return
    from dlq_cli.facts.common import document

    error = {"message": what, "hints": [line for line in more if line], "exit_code": code}
    click.echo(document({"error": error}))
