"""`dlq spec`: work on job specs without a cluster."""

from __future__ import annotations

import click

from dlq_cli.lazy import Lazy, LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "init": Lazy("dlq_cli.commands.spec.init:init", "Write a template to start from."),
        "check": Lazy("dlq_cli.commands.spec.check:check", "Problems of specs, by line."),
        "convert": Lazy("dlq_cli.commands.spec.convert:convert", "From #SBATCH to #DLQ or TOML."),
    },
)
def spec() -> None:
    """Job specs and scripts, offline: nothing here asks the master.

    \b
    dlq spec init job.toml               a template with comments
    dlq spec check job.toml              every mistake, with its line
    dlq spec convert train.slurm         from #SBATCH lines
    """
