"""Logs of real clusters that are too large for the repository.

The short form has a sample of each. The whole form reads the file that an environment variable
names. Without it the page says that the table is left out, and why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from benchmarks import ROOT


class Log(NamedTuple):
    """The variable that names the whole file, what that is, and the sample in the repository."""

    variable: str
    about: str
    sample: str


LOGS: Mapping[str, Log] = MappingProxyType(
    {
        "philly": Log(
            "PHILLY_LOG",
            "the Philly log as petuum/adaptdl condensed it",
            "tests/data/traces/philly_twentieth.csv.gz",
        ),
    }
)


def path_of(name: str, whole: bool) -> Path:
    """Its file in one form; FileNotFoundError, in words for the page, where there is none."""
    log = LOGS[name]
    if not whole:
        return ROOT / log.sample
    told = os.environ.get(log.variable, "")
    if not told:
        raise FileNotFoundError(f"`{log.variable}` does not name a file: {log.about}")
    path = Path(told).expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(f"`{log.variable}` names a file that is not there: {log.about}")
    return path
