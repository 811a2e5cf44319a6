"""A place on another host: a program such as ssh carries the work to `dlq-master receive` there.

A request is a line of JSON and the bytes that it announces; so is its answer. The program may be
killed at any moment: the next request starts another one.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from dlq_master.shipping.place import Directory

MOST_BYTES: Final = 16 << 20  # of one request: a receiver takes no more into memory
PATIENCE_S: Final = 60.0
_PIECE: Final = 1 << 20


class RemotePlace:
    """A `ShippingPlace` behind a program that speaks to a `receive` elsewhere."""

    def __init__(self, command: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        self._command, self._patience_s = tuple(command), patience_s
        self._process: subprocess.Popen[bytes] | None = None

    def names(self, folder: str) -> list[str]:
        found: list[str] = json.loads(self._ask("names", folder))
        return found

    def read(self, name: str) -> bytes | None:
        answer = self._ask("read", name)
        return answer[1:] if answer[:1] == b"+" else None

    def create(self, name: str, data: bytes) -> bool:
        return self._ask("create", name, data) == b"+"

    def put(self, name: str, parts: Iterable[bytes], *, settled: bool = True) -> None:
        at = 0
        for part in parts:
            for first in range(0, len(part), _PIECE):
                piece = part[first : first + _PIECE]
                self._ask("piece", name, piece, at=at)
                at += len(piece)
        self._ask("finish", name, size=at)
        if settled:
            self.settle(name)

    def settle(self, name: str) -> None:
        self._ask("settle", name)

    def note(self, name: str, data: bytes) -> None:
        self._ask("note", name, data)

    def append(self, name: str, at: int, data: bytes) -> None:
        for first in range(0, len(data), _PIECE):
            self._ask("append", name, data[first : first + _PIECE], at=at + first)

    def drop(self, name: str) -> None:
        self._ask("drop", name)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # of what it never took
                    pipe.close()
        process.kill()
        process.wait()

    def _ask(self, verb: str, name: str, data: bytes = b"", **more: int) -> bytes:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with _patience(process, self._patience_s):
                _send(process.stdin, {"verb": verb, "name": name, **more}, data)
                head, body = _receive(process.stdout)
        except (OSError, ValueError, EOFError) as error:
            self.close()
            raise OSError(f"{self._command[0]}: the line broke: {error}") from None
        if "error" in head:
            raise OSError(head.get("number", 0), str(head["error"]))
        return body

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._process


def receive(path: Path, asked: IO[bytes], answers: IO[bytes]) -> None:
    """Do what a `RemotePlace` asks, in this directory, until it closes."""
    place = Directory(path)
    while True:
        try:
            head, body = _receive(asked)
        except EOFError:
            return
        try:
            _send(answers, {}, _done(place, head, body))
        except (OSError, ValueError, KeyError) as error:
            said = getattr(error, "strerror", None) or str(error)
            _send(answers, {"error": said, "number": getattr(error, "errno", 0) or 0}, b"")


def _done(place: Directory, head: dict[str, Any], data: bytes) -> bytes:
    name = str(head.get("name", ""))
    match head.get("verb"):
        case "names":
            return json.dumps(place.names(name)).encode()
        case "read":
            found = place.read(name)
            return b"-" if found is None else b"+" + found
        case "create":
            return b"+" if place.create(name, data) else b"-"
        case "piece":
            place.piece(name, int(head["at"]), data)
        case "finish":
            place.finish(name, int(head["size"]))
        case "settle":
            place.settle(name)
        case "note":
            place.note(name, data)
        case "append":
            place.append(name, int(head["at"]), data)
        case "drop":
            place.drop(name)
        case verb:
            raise ValueError(f"no verb {verb!r}")
    return b""


@contextmanager
def _patience(process: subprocess.Popen[bytes], patience_s: float) -> Iterator[None]:
    """A program that neither takes nor answers is killed: both then fail at once."""
    timer = threading.Timer(patience_s, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _send(pipe: IO[bytes], head: dict[str, Any], data: bytes) -> None:
    pipe.write(json.dumps({**head, "bytes": len(data)}).encode() + b"\n" + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    """Raises EOFError at the end, and ValueError for anything else than a message."""
    line = pipe.readline(4096)
    if not line:
        raise EOFError("no more is said")
    head = json.loads(line)
    if not isinstance(head, dict) or not 0 <= int(head["bytes"]) <= MOST_BYTES:
        raise ValueError("no message")
    data = pipe.read(int(head["bytes"]))
    if len(data) != int(head["bytes"]):
        raise EOFError("the message was cut")
    return head, data
