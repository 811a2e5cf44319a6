"""From shipped files to a database: the newest chain, up to its last whole file.

A file that is torn, changed, missing or out of order ends the chain before it. Where not even a
snapshot and the segment behind it are whole, an older chain is taken. The report says each of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dlq_common.errors import DlqError
from dlq_master.shipping.container import (
    SEGMENT,
    SNAPSHOT,
    ShippedDamaged,
    ShippedFacts,
    checked,
    numbered_pages,
    unpacked,
)
from dlq_master.shipping.place import HEARTBEAT, OWNER, Directory, epoch_of
from dlq_master.shipping.shipper import Heartbeat

RECOVERED: Final = "recovered"  # key of an owner that is a recovery, and ships nothing


class NothingShipped(DlqError):
    """The place holds no chain that can be recovered."""

    reason = "NOTHING_SHIPPED"


@dataclass(slots=True)
class Recovered:
    """The origin of a database that was put together. `said`: files that were of no use."""

    folder: Path
    snapshot: ShippedFacts
    last: ShippedFacts
    said: list[str] = field(default_factory=list)


def owner_of(place: Directory, folder: str) -> dict[str, object]:
    """Whose epoch it is; nothing where that cannot be read."""
    try:
        found: dict[str, object] = json.loads(place.read(f"{folder}/{OWNER}") or b"{}")
    except ValueError:
        return {}
    return found


def heartbeat_of(place: Directory, folder: str) -> Heartbeat | None:
    """The last sign of life of an epoch's master; None: there is none that can be read."""
    try:
        return Heartbeat(**json.loads(place.read(f"{folder}/{HEARTBEAT}") or b""))
    except (ValueError, TypeError):
        return None


def rebuild(place: Directory, database: Path, system: str = "") -> Recovered:
    """Write the newest database that the place holds. Raises NothingShipped when it holds none,
    OSError when this disk cannot take it.

    `system`: the cluster that it must be of; "": any.
    """
    said: list[str] = []
    for snapshot in _snapshots(place):
        try:
            made = _rebuild(snapshot, database, system)
        except ShippedDamaged as damaged:
            said.append(f"{damaged.what}; an older chain is taken")
            continue
        made.said[:0] = said
        return made
    raise NothingShipped(
        "; ".join([f"{place.path} holds no whole snapshot", *said]),
        hint="restore a backup instead (docs/running/backup.md), or look for a copy of this place",
    )


def _snapshots(place: Directory) -> Iterator[Path]:
    """The newest first."""
    for folder in reversed(place.names("")):
        names = [name for name in place.names(folder) if name.endswith(f".{SNAPSHOT}")]
        yield from (place.path / folder / name for name in sorted(names, reverse=True))


def _rebuild(snapshot: Path, database: Path, system: str) -> Recovered:
    first, digest = checked(snapshot)
    _expect(snapshot, first, SNAPSHOT, snapshot, "")
    if system and first.system != system:
        raise ShippedDamaged(f"{snapshot} is of another cluster")
    with database.open("wb") as file:
        for part in unpacked(snapshot):
            file.write(part)
    made = Recovered(snapshot.parent, first, first)
    with database.open("r+b") as file:
        while True:
            number = made.last.sequence + 1
            path = snapshot.with_name(f"{number:012d}.{SEGMENT}")
            try:
                facts, digest = _follow(path, made.last, digest)
            except (ShippedDamaged, FileNotFoundError) as error:
                if made.last is first:  # the copy alone is of no single instant
                    raise ShippedDamaged(_words(path, error)) from None
                _note_rest(made, path, error)
                break
            for page, content in numbered_pages(path, facts.page_bytes):
                file.seek((page - 1) * facts.page_bytes)
                file.write(content)
            if facts.page_count:
                file.truncate(facts.page_count * facts.page_bytes)
            made.last = facts
        file.flush()
        os.fsync(file.fileno())
    return made


def _follow(path: Path, last: ShippedFacts, digest: str) -> tuple[ShippedFacts, str]:
    """The facts and the hash of the next segment. Raises ShippedDamaged or FileNotFoundError."""
    facts, found = checked(path)
    _expect(path, facts, SEGMENT, path, digest)
    if facts.system != last.system or facts.page_bytes != last.page_bytes:
        raise ShippedDamaged(f"{path} is of another database")
    return facts, found


def _expect(path: Path, facts: ShippedFacts, kind: str, name: Path, previous: str) -> None:
    """A file stands where it was made for."""
    at = int(name.name.partition(".")[0]), epoch_of(path.parent.name)
    if facts.kind != kind or (facts.sequence, facts.epoch) != at or facts.previous != previous:
        raise ShippedDamaged(f"{path} belongs to another place of the chain")


def _note_rest(made: Recovered, path: Path, error: Exception) -> None:
    """The chain ends here; say so where more was shipped."""
    later = [one for one in path.parent.glob(f"*.{SEGMENT}") if one.name >= path.name]
    if later:
        made.said.append(
            f"{_words(path, error)}; the chain ends before it, and {len(later)} files are not used"
        )


def _words(path: Path, error: Exception) -> str:
    return f"{path} is missing" if isinstance(error, FileNotFoundError) else str(error)
