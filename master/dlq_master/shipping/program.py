"""The shipping as a process of its own: where a place is away it may hang, and no master does.

    python -m dlq_master.shipping.program

The master writes one line, the assignment, and closes the pipe when it ends or dies. The process
then ships what is left, and ends. It says on its standard output what the operator must know, and
keeps the status file of the state directory.
"""

from __future__ import annotations

import json
import os
import select
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dlq_common.clock import Clock, SteadyClock
from dlq_common.daemon.logs import configure_logging, get_logger
from dlq_common.text.instants import format_instant
from dlq_master.shipping.line import RemotePlace
from dlq_master.shipping.place import Directory, ShippingPlace, ShippingRefused
from dlq_master.shipping.shipper import Assignment, Shipper, Superseded
from dlq_master.shipping.status import SUPERSEDED, write_status

STOP: Final = b"stop\n"
REPLACED_CODE: Final = 3  # of a process whose master has been replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippingOrder:
    """The settings of one process, from its master."""

    assignment: Assignment
    directory: str
    command: tuple[str, ...]
    same_disk: bool
    log_level: str

    def text(self) -> bytes:
        """One line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> ShippingOrder:
        """The order that `text` wrote."""
        fields: dict[str, Any] = json.loads(line)
        assignment = Assignment(**fields.pop("assignment"))
        return cls(assignment=assignment, command=tuple(fields.pop("command")), **fields)

    def place(self) -> ShippingPlace:
        """Where the files go."""
        return RemotePlace(self.command) if self.command else Directory(Path(self.directory))


class ShippingLoop:
    """Cycles until the master ends, with a word to the log at each change for better or worse."""

    def __init__(self, order: ShippingOrder, clock: Clock, shipper: Shipper) -> None:
        self._order, self._clock, self._shipper = order, clock, shipper
        self._state_dir = Path(order.assignment.state_dir)
        self._log = get_logger("master.shipping")
        self._failure = "the first snapshot is not there yet"

    def cycle(self, *, is_last: bool = False) -> None:
        """One cycle; its failure is said and kept in the status. Raises Superseded."""
        try:
            self._check_disk()
            status = self._shipper.cycle(is_last=is_last)
        except Superseded as by:
            self._note_superseded(str(by))
            raise
        except (OSError, ShippingRefused) as error:
            what = error.what if isinstance(error, ShippingRefused) else str(error)
            status = self._shipper.status(what)
        write_status(self._state_dir, status)
        self._say(status.failure)

    def _check_disk(self) -> None:
        if self._order.command or self._order.same_disk:
            return
        there, here = os.stat(self._order.directory), self._state_dir.stat()
        if there.st_dev == here.st_dev:
            raise ShippingRefused(
                f"{self._order.directory} is on the disk of the master: is it mounted?"
            )

    def _say(self, failure: str) -> None:
        if failure == self._failure:
            return
        before, self._failure = self._failure, failure
        if failure:
            self._log.error("shipping_failed", cause=failure)
        else:
            self._log.info("shipping_works", before=before)

    def _note_superseded(self, by: str) -> None:
        """So that no start of this master forgets it."""
        since = format_instant(self._clock.now_s())
        (self._state_dir / SUPERSEDED).write_text(f"{by}, seen at {since}\n")
        self._log.critical("master_superseded", by=by)


def main() -> None:
    """Serve one master."""
    os.nice(5)
    pipe = sys.stdin.fileno()
    order = ShippingOrder.read(sys.stdin.buffer.readline())
    clock = SteadyClock()
    configure_logging(clock, level=order.log_level)
    place = order.place()
    loop = ShippingLoop(order, clock, Shipper(order.assignment, place, clock))
    try:
        while not (said := _said(pipe, order.assignment.every_s)):
            loop.cycle()
        loop.cycle(is_last=said == STOP)
    except Superseded:
        sys.exit(REPLACED_CODE)
    finally:
        place.close()


def _said(pipe: int, patience_s: float) -> bytes:
    """The last word of the master, "?" of a dead one; nothing while it serves."""
    ready, _, _ = select.select([pipe], [], [], patience_s)
    return (os.read(pipe, 100) or b"?") if ready else b""


if __name__ == "__main__":
    main()
