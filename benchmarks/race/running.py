"""One run of the race: its clusters, its turns, its rows."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.live.restart import resident_mib
from benchmarks.race import machine
from benchmarks.race.dlq_side import DlqSide
from benchmarks.race.hyperqueue_side import HyperQueueSide
from benchmarks.race.pairs import Goals, Row, Turn
from benchmarks.race.slurm_side import SlurmSide
from benchmarks.race.table import row_text
from benchmarks.support.report import Report
from dlq_common.daemon.resident import SETTLED_S

SETTLE_S = 10.0  # Slurm writes its jobs down some seconds later
EMPTY_SETTLE_S = SETTLED_S + 5.0  # the daemons have given back what their start needed


class Wanted(NamedTuple):
    """The clusters that a line asks for."""

    nodes: int
    virtual: bool = False  # dlq's agents
    many_short_jobs: bool = False  # Slurm's settings
    waiting: int = 0  # jobs in the queue of each, behind jobs of one GPU on every GPU


class Side(NamedTuple):
    """A turn of one side: `work` returns its value."""

    work: Callable[[], float]
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None


class Sides(NamedTuple):
    """The two clusters, each of `nodes` nodes of eight GPUs."""

    slurm: SlurmSide
    dlq: DlqSide

    def groups(self) -> Mapping[str, list[int]]:
        """The roots of their trees of processes."""
        return {
            f"{side.name}{what}": pids
            for side in self
            for what, pids in (("", side.daemons()), (" controller", side.controllers()))
        }

    def clear(self) -> None:
        """No job is left on either."""
        for side in self:
            side.clear()

    def resident_mib(self) -> dict[str, float]:
        """Memory of each side's controllers with their children, of the one that holds the jobs,
        and of an agent.
        """
        found = machine.processes()
        every: dict[str, set[int]] = {}
        for side in self:
            every[side.name] = machine.tree(found, side.controllers())
            every[f"{side.name} holder"] = {side.controllers()[-1]}
            every[f"{side.name} agent"] = {side.an_agent()}
        return {name: sum(map(resident_mib, pids)) for name, pids in every.items()}


@dataclass(slots=True)
class Race:
    """Measures pairs and keeps the rows; each line is given it."""

    report: Report
    repeat: int
    short: bool
    full: bool = False
    rows: list[Row] = field(default_factory=list)
    line: str = ""
    failed: list[str] = field(default_factory=list)  # lines that broke off
    _wanted: Wanted | None = None
    _sides: Sides | None = None
    # Of each set-up, before the queue was filled and after it.
    empty_mib: list[dict[str, float]] = field(default_factory=list)
    full_mib: list[dict[str, float]] = field(default_factory=list)
    _open: ExitStack = field(default_factory=ExitStack)

    def sides(self, wanted: Wanted) -> Sides:
        """Two clusters with just the wanted jobs; those of the line before, if they fit."""
        if wanted != self._wanted:
            self.close()
            self.report.say(f"  setting up: {wanted.nodes} nodes each")
            self._sides = self._open.enter_context(_both(wanted))
            self._wanted = wanted
            self._fill(self._sides, wanted.waiting)
        if not wanted.waiting:
            self.sides_now().clear()
        return self.sides_now()

    def _fill(self, sides: Sides, waiting: int) -> None:
        if waiting:
            time.sleep(EMPTY_SETTLE_S)
            self.empty_mib.append(sides.resident_mib())
            for side in sides:
                side.fill(1)
                side.submit(waiting)
            time.sleep(SETTLE_S / 2 if self.short else SETTLE_S)
            self.full_mib.append(sides.resident_mib())

    def sides_now(self) -> Sides:
        """The two clusters as they stand."""
        assert self._sides is not None
        return self._sides

    def close(self) -> None:
        """Both clusters end, with all that they started."""
        self._wanted = self._sides = None
        self._open.close()

    def pairs(
        self,
        name: str,
        unit: str,
        both: Sequence[Side],
        operations: int,
        how: str,
        peer: HyperQueueSide | None = None,
        **more: Any,
    ) -> Row:
        """Let both sides, Slurm's and dlq's, do it in turn, the one and the other first; tell the
        row. `peer` takes the place of Slurm.
        """
        row = Row(self.line, name, unit, how, peer="HyperQueue" if peer else "Slurm", **more)
        rivals = (peer.name if peer else "slurm", "dlq")
        for number in range(self.repeat):
            order = [*zip(rivals, rivals[::-1], (row.slurm, row.dlq), both, strict=True)]
            for side, rival, turns, does in order if number % 2 == 0 else order[::-1]:
                turns.append(self._turn(side, rival, does, operations, peer))
        self.tell(row)
        return row

    def _turn(
        self, side: str, rival: str, does: Side, operations: int, peer: HyperQueueSide | None
    ) -> Turn:
        def groups() -> Mapping[str, list[int]]:
            ours = self.sides_now().groups()
            return ours if peer is None else {**ours, **peer.groups()}

        does.before()
        found = machine.turn(does.work, operations, groups, side, rival)
        does.after()
        return found

    def alone(
        self,
        name: str,
        unit: str,
        values: Iterable[tuple[Turn, float]],
        goals: Goals,
        how: str = "",
    ) -> None:
        """A row of dlq alone: values that were found in turns."""
        dlq = [replace(turn, value=value) for turn, value in values]
        self.tell(Row(self.line, name, unit, how, goals=goals, dlq=dlq, with_cpu=False))

    def steadily(
        self, name: str, unit: str, slurm: Iterable[float], dlq: Iterable[float], **more: Any
    ) -> None:
        """A row of pairs of figures that other work does not change."""
        row = Row(self.line, name, unit, more.pop("how", ""), steady=True, **more)
        row.slurm, row.dlq = [*map(steady, slurm)], [*map(steady, dlq)]
        self.tell(row)

    def tell(self, row: Row) -> None:
        """It is part of the result."""
        self.rows.append(row)
        self.report.say("  " + row_text(row))


def steady(value: float) -> Turn:
    """A value that no time was measured for."""
    return Turn(value, 0.0, 0.0, 0.0, 0.0)


@contextmanager
def _both(wanted: Wanted) -> Iterator[Sides]:
    root = Path(tempfile.mkdtemp(prefix="dlqr", dir="/tmp"))  # a socket's address is short
    root.chmod(0o755)
    try:
        with ExitStack() as opened:
            (root / "s").mkdir()
            (root / "d").mkdir()
            slurm = SlurmSide(root / "s", wanted.nodes, many_short_jobs=wanted.many_short_jobs)
            yield Sides(
                opened.enter_context(slurm),
                opened.enter_context(DlqSide(root / "d", wanted.nodes, virtual=wanted.virtual)),
            )
    finally:
        machine.end_all()
        shutil.rmtree(root)
