"""`sprio`: dlq's order is no sum of factors, so it says what Slurm says of priority/basic."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.words import Grammar, read

GRAMMAR = Grammar(
    "sprio",
    {
        "h": "noheader", "j": "jobs", "l": "long", "M": "clusters", "n": "norm", "o": "format",
        "p": "partition", "S": "sort", "u": "user", "v": "verbose", "w": "weights",
    },
    frozenset({"clusters", "cluster", "format", "jobs", "partition", "sort", "user", "users"}),
    frozenset(
        {
            "federation", "help", "local", "long", "noheader", "norm", "sibling", "usage",
            "verbose", "weights",
        }
    ),
    optional=frozenset({"jobs"}),
    same={"cluster": "clusters", "users": "user"},
    usage="\n".join(
        (
            "Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions]",
            "   [--federation] [--local] [--sibling] [--usage] [-hlnvVw]",
        )
    ),
)  # fmt: skip
_PLUGIN = (
    "You are not running a supported priority plugin",
    "(priority/basic).",
    "Only 'priority/multifactor' is supported.",
)


def main(app: App, words: Sequence[str]) -> None:
    """Where to look instead is told behind Slurm's lines."""
    given = read(GRAMMAR, words)
    if "usage" in given.options or "help" in given.options:
        click.echo(GRAMMAR.usage)
        return
    raise SlurmSays(*_PLUGIN, "  dlq why JOB tells its place and what is before it")
