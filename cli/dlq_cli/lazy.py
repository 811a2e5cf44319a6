"""Commands that are imported when they are called, so that `dlq --help` and completion are
quick.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from dlq_cli.exit_codes import OK, Ended
from dlq_cli.quiet import quiet_grpc

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Other rooms lend commands under this entry point group; they are loaded only when called.
ENTRY_POINTS = "dlq.commands"
LENT_HELP = {
    "simulate": "Replay a trace on a cluster under one or more policies.",
    "web": "A web page and an HTTP API on this host, with your rights.",
}


_MEANT = {
    "help": "--help", "ls": "status", "list": "status", "ps": "status", "jobs": "status",
    "queue": "status", "squeue": "status", "kill": "cancel JOB", "stop": "cancel JOB",
    "rm": "cancel JOB", "delete": "cancel JOB", "abort": "cancel JOB", "scancel": "cancel JOB",
    "info": "show JOB", "describe": "show JOB", "tail": "logs -f JOB", "cat": "logs JOB",
    "output": "logs JOB", "sinfo": "nodes", "sbatch": "submit", "srun": "run", "sacct": "history",
    "start": "submit", "suspend": "pause JOB",
}  # fmt: skip
"""Words of other programs, and the command here: `dlq ps` is not `dlq gpus`."""


class Lazy(NamedTuple):
    """The place of a command, and its line in the list of commands."""

    target: str  # module:attribute
    help: str


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads the one that is asked for."""

    def __init__(
        self, *args: Any, lazy: Mapping[str, Lazy], lends: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy
        self._lends = lends

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # `dlq status | head`: the reader has seen enough.
            let_go_of_stdout()
            raise Ended(OK) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *sorted(set(self._lent()) - set(self._lazy))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if known := self._lazy.get(cmd_name):
            module, _, attribute = known.target.partition(":")
            with quiet_grpc():
                command = getattr(importlib.import_module(module), attribute)
        elif lent := self._lent().get(cmd_name):
            command = _load(lent)
        else:
            return None
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{cmd_name} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command_target(args[0]) is None and not args[0].startswith("-"):
            from dlq_common.text.suggest import did_you_mean

            meant = _MEANT.get(args[0].lower()) if self._lends else None
            near = (
                f"; write dlq {meant}" if meant else did_you_mean(args[0], self.list_commands(ctx))
            )
            ctx.fail(f"there is no command {args[0][:64]!r}{near}")
        return super().resolve_command(ctx, args)

    def get_command_target(self, name: str) -> object | None:
        """The place of a command, without loading it."""
        return self._lazy.get(name) or self._lent().get(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands from the table: loading all of them would be slow."""
        rows = [(name, known.help) for name, known in self._lazy.items()]
        rows += [
            (name, LENT_HELP.get(name, f"From {lent.module.partition('.')[0]}."))
            for name, lent in sorted(self._lent().items())
            if name not in self._lazy
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and options from the table; a key press must not load the commands."""
        items = [
            CompletionItem(name, help=known.help)
            for name, known in self._lazy.items()
            if name.startswith(incomplete)
        ]
        items += [CompletionItem(name) for name in self._lent() if name.startswith(incomplete)]
        # Without commands of its own, the base class adds the options alone.
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def _lent(self) -> dict[str, EntryPoint]:
        if not self._lends:
            return {}
        # Of this distribution alone: to read those of all takes longer than the rest of the help.
        from importlib.metadata import distributions

        return {
            point.name: point
            for ours in distributions(name="dlq")
            for point in ours.entry_points.select(group=ENTRY_POINTS)
        }


def let_go_of_stdout() -> None:
    """Detach stdout: not even the interpreter's end may flush into it any more."""
    with suppress(OSError, ValueError):  # in a test it may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _load(point: EntryPoint) -> object:
    try:
        return point.load()
    except ImportError as error:
        raise click.ClickException(
            f"`dlq {point.name}` is not installed: {error}; pip install 'dlq[sim]' brings it"
        ) from None
