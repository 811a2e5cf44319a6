"""What goes through the pipes between the master and the processes that it starts: lengths and
bytes.
"""

from __future__ import annotations

import struct

# Four bytes, the highest first.
_LENGTH = struct.Struct(">I")
HEAD = _LENGTH.size
# No state of a cluster is as large: what claims to be longer was not written by us.
LONGEST = 1 << 28


class BadFrame(ValueError):
    """The bytes are no frame: nothing after them can be trusted either."""


def framed(content: bytes) -> bytes:
    """The content as a frame."""
    return _LENGTH.pack(len(content)) + content


def length_of(head: bytes) -> int:
    """How many bytes follow these first ones. Raises BadFrame for more than there ever are."""
    (length,) = _LENGTH.unpack(head)
    if length > LONGEST:
        raise BadFrame(f"a frame of {length} bytes")
    return int(length)
