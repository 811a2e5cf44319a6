"""Pictures of a page with at most 256 colours: a third of the bytes, and the same to the eye.

The browser's PNG is read as it writes it: 8 bits a channel, without interlace. The commonest
colours are kept. Every other one becomes the nearest of them.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_COLOURS = 256
_CHANNELS = {2: 3, 6: 4}


def with_palette(png: bytes) -> bytes:
    """The same picture by a palette."""
    chunks = list(_chunks(png))
    width, height, depth, kind, _, _, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, interlace) == (8, 0), "another form than a browser's"
    channels = _CHANNELS[kind]
    packed = b"".join(body for name, body in chunks if name == b"IDAT")
    rows = _rows(zlib.decompress(packed), width * channels, channels)
    pixels = [
        [row[at : at + 3] for at in range(0, len(row), channels)]
        for row in (bytes(row) for row in rows)
    ]
    counted = Counter(colour for row in pixels for colour in row)
    palette = [colour for colour, _ in counted.most_common(MOST_COLOURS)]
    number = {colour: _nearest(colour, palette) for colour in counted}
    body = b"".join(b"\0" + bytes(number[colour] for colour in row) for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return SIGNATURE + b"".join(
        _chunk(name, data)
        for name, data in (
            (b"IHDR", head),
            (b"PLTE", b"".join(palette)),
            (b"IDAT", zlib.compress(body, 9)),
            (b"IEND", b""),
        )
    )


def _nearest(colour: bytes, palette: list[bytes]) -> int:
    def far(at: int) -> int:
        return sum((a - b) ** 2 for a, b in zip(colour, palette[at], strict=True))

    return min(range(len(palette)), key=far)


def _rows(raw: bytes, length: int, step: int) -> Iterator[bytearray]:
    """The lines, without the filters by which PNG packs them better."""
    above = bytearray(length)
    for at in range(0, len(raw), length + 1):
        filter_, row = raw[at], bytearray(raw[at + 1 : at + 1 + length])
        for i in range(length) if filter_ else ():
            left = row[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            guess = (0, left, above[i], (left + above[i]) // 2, _paeth(left, above[i], corner))
            row[i] = (row[i] + guess[filter_]) & 255
        yield row
        above = row


def _paeth(left: int, up: int, corner: int) -> int:
    base = left + up - corner
    return min((left, up, corner), key=lambda one: abs(base - one))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    assert png.startswith(SIGNATURE)
    at = len(SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += length + 12


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
