"""The progress line of a long replay for people: the finished part, the speed and the remaining
time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

from dlq_simulator.replay.engine import Progress

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

LONG = 5_000  # jobs; fewer are replayed within about a second


@contextmanager
def progress_bar(policy: str, jobs: int, file: TextIO | None = None) -> Iterator[Progress | None]:
    """A bar on stderr (or `file`) if a person watches a long replay, else nothing."""
    out = sys.stderr if file is None else file
    if jobs < LONG or not out.isatty():
        yield None
        return
    began_s = time.monotonic()
    bar: ProgressBar[int] = click.progressbar(
        length=jobs,
        label=policy,
        file=out,
        show_eta=True,
        show_pos=True,
        update_min_steps=max(1, jobs // 200),
    )

    def rate(_item: int | None) -> str:
        took_s = time.monotonic() - began_s
        return f"{bar.pos / took_s:,.0f} jobs/s" if took_s > 0 else ""

    bar.item_show_func = rate
    with bar:
        yield bar.update
