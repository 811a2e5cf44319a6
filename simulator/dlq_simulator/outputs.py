"""No output of `dlq simulate` overwrites one of its inputs, by any name of the same file.

The check comes before the trace is read and before anything is written. A link, a hard link and
another way to write the path name the same file.
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from os import stat_result
from os.path import realpath
from pathlib import Path

from dlq_simulator.errors import UsageError
from dlq_simulator.readers.gpuaas import times_beside

Files = Sequence[tuple[Path, str]]  # each path and its name in errors
STDOUT = Path("/dev/stdout")
_REMEDY = "give another path"


def inputs_of(
    trace: str, cluster: str = "", assignments: Sequence[str] = ()
) -> list[tuple[Path, str]]:
    """The files that a command reads: the trace, its companions, the cluster and its loads."""
    found = [(Path(trace), "the trace")]
    found += [(beside, "the run times beside the trace") for beside in times_beside(Path(trace))]
    if cluster.endswith(".toml"):
        found.append((Path(cluster), "the cluster"))
        found += [(load, "a load of the cluster") for load in _loads(Path(cluster))]
    words = [assignment.partition("=") for assignment in assignments]
    return found + [(Path(value), "the history") for key, _, value in words if key == "history"]


def check_outputs(outputs: Files, inputs: Files) -> None:
    """UsageError if an output is an input, or if two outputs are one file."""
    for path, option in outputs:
        for read, name in inputs:
            if _same(path, read):
                why = f"it is {name}, {str(read)!r}, and would be overwritten"
                raise UsageError(f"cannot write {option} to {str(path)!r}", why, _REMEDY)
    for (path, option), (other, second) in combinations(outputs, 2):
        if _same(path, other):
            why = f"{option} is written to the same file"
            raise UsageError(f"cannot write {second} to {str(other)!r}", why, _REMEDY)


def pictures_in(directory: Path) -> Iterator[Path]:
    """The pictures that are there already: new ones may have the same names."""
    try:
        yield from directory.glob("*.svg")
    except OSError:  # the directory is checked for itself
        return


def _loads(cluster: Path) -> Iterable[Path]:
    """The load files that a cluster names; a fault of the cluster is told by its reader."""
    try:
        tables = tomllib.loads(cluster.read_text(encoding="utf-8")).get("loans", [])
    except (OSError, ValueError):
        return []
    words = [table.get("trace") for table in tables if isinstance(table, dict)]
    return [cluster.parent / word for word in words if isinstance(word, str)]


def _same(one: Path, other: Path) -> bool:
    """Whether both name one ordinary file, or would: a terminal or a pipe loses nothing."""
    here, there = _stat(one), _stat(other)
    if here is None or there is None:
        return here is there and realpath(one) == realpath(other)
    same = (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
    return same and stat.S_ISREG(here.st_mode)


def _stat(path: Path) -> stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None
