"""Where shipped files go: a directory with one directory for each epoch of a master.

A name appears when its file is whole and on disk, never before. The first file of an epoch is made
by one process only: two masters of one epoch cannot both own it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from dlq_common.errors import DlqError
from dlq_master.store.sqlite.open import sync

OWNER: Final = "owner"
HEARTBEAT: Final = "heartbeat"
UNFINISHED: Final = ".part"
_NAME = re.compile(r"(e\d{12}/)?[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
_EPOCH = re.compile(r"e(\d{12})")


class ShippingRefused(DlqError):
    """This master may not ship to this place: another one does, or it is of another cluster."""

    reason = "SHIPPING_REFUSED"


class ShippingPlace(Protocol):
    """A directory here or elsewhere. Every method raises OSError when it cannot."""

    def names(self, folder: str) -> list[str]:
        """The files of a folder; "": the folders of all epochs."""

    def read(self, name: str) -> bytes | None:
        """A small file; None: there is none."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, whole and on disk. False: it is there already, and stays as it is."""

    def put(self, name: str, parts: Iterable[bytes], *, settled: bool = True) -> None:
        """Write a file, in the place of one of that name. Its name appears when it is on disk;
        where not `settled`, after `settle`.
        """

    def settle(self, name: str) -> None:
        """Let the name of a file appear that `put` has left."""

    def note(self, name: str, data: bytes) -> None:
        """As `put`, and a crash of the host may lose it."""

    def append(self, name: str, at: int, data: bytes) -> None:
        """Write these bytes at that position of a file, to the disk."""

    def drop(self, name: str) -> None:
        """Remove a file, or the folder of an epoch with all that is in it."""

    def close(self) -> None:
        """It is needed no more."""


class Directory:
    """A directory that this process can write: of a disk, or of a mounted file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self, folder: str) -> list[str]:
        if not folder:
            self.path.stat()  # a place that is away is not an empty one
            return sorted(one.name for one in self.path.iterdir() if _EPOCH.fullmatch(one.name))
        here = self._at(f"{folder}/x").parent
        return sorted(one.name for one in here.iterdir()) if here.is_dir() else []

    def read(self, name: str) -> bytes | None:
        try:
            return self._at(name).read_bytes()
        except FileNotFoundError:
            return None

    def create(self, name: str, data: bytes) -> bool:
        path = self._at(name)
        made = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
        self.path.stat()
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _write(made, [data])
        try:
            os.link(made, path)
        except FileExistsError:
            return False
        finally:
            made.unlink()
        sync(path.parent)
        sync(self.path)
        return True

    def put(self, name: str, parts: Iterable[bytes], *, settled: bool = True) -> None:
        _write(self._unfinished(name), parts)
        if settled:
            self.settle(name)

    def settle(self, name: str) -> None:
        path = self._at(name)
        self._unfinished(name).replace(path)
        sync(path.parent)

    def piece(self, name: str, at: int, data: bytes) -> None:
        """A part of a file whose name does not appear yet; the one at 0 begins it anew."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if at else os.O_TRUNC)
        handle = os.open(self._unfinished(name), flags, 0o600)
        try:
            _write_all(handle, data, at)
        finally:
            os.close(handle)

    def finish(self, name: str, size: int) -> None:
        """All parts are there. Raises OSError when they are not so long."""
        path = self._unfinished(name)
        if path.stat().st_size != size:
            raise OSError(f"{path} is {path.stat().st_size} bytes long, and not {size}")
        sync(path)

    def note(self, name: str, data: bytes) -> None:
        unfinished = self._unfinished(name)
        try:
            unfinished.write_bytes(data)
        except OSError as error:
            raise _named(error, unfinished) from None
        unfinished.replace(self._at(name))

    def append(self, name: str, at: int, data: bytes) -> None:
        handle = os.open(self._at(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _write_all(handle, data, at)
            os.fsync(handle)
        except OSError as error:
            raise _named(error, self._at(name)) from None
        finally:
            os.close(handle)

    def drop(self, name: str) -> None:
        if not _EPOCH.fullmatch(name):
            self._at(name).unlink(missing_ok=True)
            return
        for file in (self.path / name).iterdir():
            file.unlink()
        (self.path / name).rmdir()

    def close(self) -> None:
        """Nothing is held."""

    def _at(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a shipped file")
        return self.path / name

    def _unfinished(self, name: str) -> Path:
        path = self._at(name)
        return path.with_name(path.name + UNFINISHED)


def folder_of(epoch: int) -> str:
    """The folder of an epoch."""
    return f"e{epoch:012d}"


def epoch_of(folder: str) -> int:
    """The epoch of a folder."""
    return int(folder[1:])


def _write(path: Path, parts: Iterable[bytes]) -> None:
    """The whole of a file on disk; a file that was not finished is removed."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        at = 0
        for part in parts:
            _write_all(handle, part, at)
            at += len(part)
        os.fsync(handle)
    except BaseException as error:
        with suppress(OSError):  # it gives its room back: the disk may be full
            path.unlink()
        if isinstance(error, OSError):
            raise _named(error, path) from None
        raise
    finally:
        os.close(handle)


def _named(error: OSError, path: Path) -> OSError:
    """The same error, and the file that it is about: a descriptor has no name."""
    return OSError(error.errno, error.strerror, str(path))


def _write_all(handle: int, data: bytes, at: int) -> None:
    """A disk that is nearly full takes less than it is given."""
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written
