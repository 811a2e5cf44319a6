"""The reports that operators read once a week."""

from __future__ import annotations

import click

from dlq_cli.lazy import Lazy, LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "usage": Lazy("dlq_cli.commands.report.past:usage", "GPU-hours, idle ones included."),
        "waits": Lazy("dlq_cli.commands.report.past:waits", "How long jobs waited, by width."),
        "promises": Lazy("dlq_cli.commands.report.past:promises", "Deadlines kept and missed."),
        "preemptions": Lazy(
            "dlq_cli.commands.report.past:preemptions", "Costs of taking GPUs away."
        ),
        "cost": Lazy("dlq_cli.commands.report.cost:cost", "Rented machines and being late."),
    },
)
def report() -> None:
    """For operators: reports over all users' jobs.

    \b
    dlq report usage -S 30d          who used what, what was lost, what lay idle
    dlq report waits                 jobs of the last week, by how many GPUs they asked for
    dlq report promises --json       deadlines kept and missed
    dlq report preemptions --csv     whose jobs had to leave, and what that cost them
    dlq report cost --by pool,day    what was paid for rented machines, and expected to be
    """
