"""The driver's messages (Xids) in the kernel's log: this boot's, then new ones."""

import os
import re
from typing import NamedTuple

KMSG = "/dev/kmsg"
_RECORD = 8192  # the kernel's own limit for one
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (\d{1,4})(?:, (.*))?"  # noqa: E501
)


class LoggedXid(NamedTuple):
    """One message: the card at this place, and the time after the boot."""

    pci: str
    number: int
    boot_s: float
    words: str


class KernelLog:
    """Reads without waiting. OSError at the start when this user may not read the log."""

    def __init__(self, path: str = KMSG) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._descriptor)

    def xids(self) -> list[LoggedXid]:
        found: list[LoggedXid] = []
        while True:
            try:
                record = os.read(self._descriptor, _RECORD)
            except BlockingIOError:
                return found
            except BrokenPipeError:
                continue  # it was overwritten before we came; the next read goes on behind it
            if not record:
                return found
            xid = parse(record.decode("utf-8", "replace"))
            if xid is not None:
                found.append(xid)


def parse(record: str) -> LoggedXid | None:
    """One record of /dev/kmsg: `PRIORITY,SEQUENCE,MICROSECONDS,...;TEXT`; None: it is no Xid."""
    head, _, text = record.partition(";")
    match = _XID.match(text.split("\n", 1)[0])
    numbers = head.split(",")
    if match is None or len(numbers) < 3 or not numbers[2].isdigit():
        return None
    return LoggedXid(match[1].lower(), int(match[2]), int(numbers[2]) / 1e6, match[3] or "")
