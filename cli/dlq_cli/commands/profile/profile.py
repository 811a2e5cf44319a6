"""`dlq profile`: the traffic of a job."""

from __future__ import annotations

import click

from dlq_cli.lazy import Lazy, LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "show": Lazy("dlq_cli.commands.profile.show:show", "Show recorded traffic."),
        "run": Lazy(
            "dlq_cli.commands.profile.run:run", "Run a command here and record its traffic."
        ),
    },
)
def profile() -> None:
    """Bytes, iterations and tensor sizes of training jobs, from their traffic.

    \b
    dlq profile run -- torchrun --nproc-per-node 2 train.py
    dlq profile run --keep rec -- python train.py
    dlq profile show rec
    dlq profile show 17
    """
