"""The form of a shipped file: a line of facts, compressed bytes, and the hash of all before it.

A snapshot holds a whole database. A segment holds the pages that later commits have changed, each
behind its number. Each file names the hash of the one before it. So a file that is torn, changed,
missing or in a wrong place is noticed, and nothing after it is believed.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from dlq_common.errors import DlqError
from dlq_master.shipping.log import ChangedPages

MAGIC: Final = b"dlq shipped 1\n"
SNAPSHOT: Final = "snapshot"
SEGMENT: Final = "segment"
_LEVEL: Final = 1  # of the compression: bytes of JSON shrink to a quarter, at little cost
_AT_ONCE: Final = 1 << 20
_HASH_BYTES: Final = hashlib.sha256().digest_size
_NUMBER: Final = struct.Struct(">I")


class ShippedDamaged(DlqError):
    """A shipped file that cannot be believed."""

    reason = "SHIPPED_DAMAGED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedFacts:
    """The first line of a shipped file. `time_s`: all commits before it are in."""

    kind: str
    system: str  # of the cluster: the fingerprint of its CA
    epoch: int
    sequence: int
    previous: str  # hash of the file before it; "": the first of a chain
    page_bytes: int
    page_count: int
    time_s: float


def packed(facts: ShippedFacts, parts: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a shipped file; the last one is its hash."""
    digest = hashlib.sha256()
    shrink = zlib.compressobj(_LEVEL)
    head = MAGIC + json.dumps(asdict(facts)).encode() + b"\n"
    for part in _shrunk(head, shrink, parts):
        digest.update(part)
        yield part
    yield digest.digest()


def pages_of(pages: ChangedPages) -> Iterator[bytes]:
    """The content of a segment."""
    for number in sorted(pages.content):
        yield _NUMBER.pack(number) + pages.content[number]


def pieces(path: Path) -> Iterator[bytes]:
    """A file, a megabyte at a time."""
    with path.open("rb") as file:
        while piece := file.read(_AT_ONCE):
            yield piece


def checked(path: Path) -> tuple[ShippedFacts, str]:
    """The facts and the hash of a whole file. Raises ShippedDamaged for any other."""
    digest, size = hashlib.sha256(), path.stat().st_size - _HASH_BYTES
    with path.open("rb") as file:
        left = size
        while left > 0:
            piece = file.read(min(_AT_ONCE, left))
            digest.update(piece)
            left -= len(piece) or left
        told = file.read(_HASH_BYTES)
        file.seek(0)
        first = file.read(len(MAGIC))
        line = file.readline()
    if size <= 0 or told != digest.digest() or first != MAGIC:
        raise ShippedDamaged(f"{path} is damaged: it does not match its checksum")
    return ShippedFacts(**json.loads(line)), told.hex()


def unpacked(path: Path) -> Iterator[bytes]:
    """The content of a checked file."""
    grow = zlib.decompressobj()
    with path.open("rb") as file:
        file.read(len(MAGIC))
        file.readline()
        while not grow.eof and (piece := file.read(_AT_ONCE)):
            yield grow.decompress(piece)


def numbered_pages(path: Path, page_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The pages of a checked segment."""
    data = b"".join(unpacked(path))
    for at in range(0, len(data), _NUMBER.size + page_bytes):
        (number,) = _NUMBER.unpack_from(data, at)
        yield number, data[at + _NUMBER.size : at + _NUMBER.size + page_bytes]


def _shrunk(head: bytes, shrink: zlib._Compress, parts: Iterable[bytes]) -> Iterator[bytes]:
    yield head
    for part in parts:
        if small := shrink.compress(part):
            yield small
    yield shrink.flush()
