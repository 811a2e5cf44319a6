"""The refusals of `dlq simulate`, as users see them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from dlq_simulator.errors import SimulateError, UsageError


class Refusal(click.ClickException):
    """A SimulateError as users see it: one line on stderr, `dlq: fault; reason; remedy`; exits
    1.
    """

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"dlq: {self.format_message()}", file=file, err=file is None)


class UsageRefusal(Refusal, click.UsageError):
    """The same for a wrong command line; exits 2. The CLI adds where the help is."""

    exit_code = click.UsageError.exit_code


@contextmanager
def refusals() -> Iterator[None]:
    """Turns a SimulateError into click's exception."""
    try:
        yield
    except UsageError as error:
        raise UsageRefusal(str(error), click.get_current_context()) from error
    except SimulateError as error:
        raise Refusal(str(error)) from error


@contextmanager
def silent_stdout() -> Iterator[None]:
    """Drop the output of native code on stdout: ours is a document."""
    sys.stdout.flush()
    ours = os.dup(1)
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)
