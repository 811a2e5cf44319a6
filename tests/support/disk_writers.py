"""Writers whose disk fails for a while: `python -m support.disk_writers KIND DIRECTORY WELL`.

Each makes its steps one after the other. A step that fails is said in words and made again; after
`PATIENCE` of them the file WELL appears, at which failing_disk.c lets everything through. At the
end the process dies without an orderly end. Lines of JSON on stdout tell what was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from dlq_common.errors import DlqError
from dlq_master.rpc.audit.audit import Audit
from dlq_nodeagent.model.rank import RankState
from dlq_nodeagent.state.journal import FileJournal, NodeRecord, RankRecord
from support.agent_bench import a_launch
from support.fake_clock import FakeClock
from support.shipped_site import ShippedSite

RANKS = 12
CALLS = 20
CYCLES = 6
PATIENCE = 3

Step = Callable[[], object]


def a_record(number: int, state: str) -> RankRecord:
    """The record of a rank of its own job."""
    return RankRecord(launch=a_launch(number + 1), state=RankState(state), recorded_s=1.8e9)


def journal_steps(directory: Path) -> Iterator[Step]:
    """The agent's: each rank is launched, and runs, and the node's record is replaced."""
    journal = FileJournal(directory)
    journal.load()

    def save(number: int, state: str) -> list[object]:
        journal.save_rank(a_record(number, state))
        journal.sync()
        return [number, state]

    def save_node(number: int) -> list[object]:
        journal.save_node(NodeRecord(highest_epoch=1000 + number, sequence_limit=3000))
        return ["node", 1000 + number]

    for number in range(RANKS):
        for state in ("launching", "running"):
            yield lambda state=state, number=number: save(number, state)  # type: ignore[misc]
        yield lambda number=number: save_node(number)  # type: ignore[misc]


def audit_steps(directory: Path) -> Iterator[Step]:
    """The master's: each call waits for its line."""
    directory.mkdir(exist_ok=True)
    audit = Audit(directory / "audit.jsonl", FakeClock())

    def call(number: int) -> str:
        asyncio.run(audit.recorded(None, "submit", str(number), "OK"))
        return str(number)

    for number in range(CALLS):
        yield lambda number=number: call(number)  # type: ignore[misc]


def shipping_steps(directory: Path) -> Iterator[Step]:
    """The shipping process: commits of the master, and a cycle that takes them away."""
    site = ShippedSite(directory)
    shipper = site.shipper()

    def cycle() -> list[str]:
        status = shipper.cycle()
        if status.failure:
            raise OSError(status.failure)
        return site.content()

    for _ in range(CYCLES):
        site.commit(3)
        yield cycle


WRITERS: dict[str, Callable[[Path], Iterator[Step]]] = {
    "journal": journal_steps,
    "audit": audit_steps,
    "shipping": shipping_steps,
}


def _say(what: str, told: object) -> None:
    sys.stdout.write(json.dumps([what, told]) + "\n")
    sys.stdout.flush()


def _words(error: DlqError | OSError) -> str:
    return str(error)  # of a DlqError: its hint too


def main(kind: str, directory: str, well: str) -> None:
    """Make all steps."""
    failures = 0
    for step in WRITERS[kind](Path(directory)):
        while True:
            try:
                told = step()
            except (DlqError, OSError) as error:
                failures += 1
                _say("failed", _words(error))
                if failures == PATIENCE:
                    Path(well).touch()
            else:
                _say("acknowledged", told)
                break
    os._exit(0)  # as after a kill


if __name__ == "__main__":
    main(*sys.argv[1:])
