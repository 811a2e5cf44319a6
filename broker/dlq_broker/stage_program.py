#!/usr/bin/env python3
"""The program of a staging job: data into a cache whose entries are named by their content.

It is the job's script, so nothing has to be installed there. It needs Python 3.8, and rsync for
data of other hosts. One directory of the user holds:

    entries/DIGEST/data   complete data; nothing else ever has this name
    partial/DIGEST/data   data on its way; the next try goes on with it
    locks/DIGEST          jobs that use the entry hold it shared; its time is the last use
    pins/DIGEST.KEY       a job that waits for the entry, or could start again, until the time in it

An entry comes to be by one rename, after its content was verified and is on the disk. So a kill at
any moment leaves the former state or the next one. An entry goes by one rename too, while its lock
is held alone, and only if no job waits for it. The kernel lets locks of dead processes go.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

FULL, DIFFERS, FAILED = 75, 65, 74  # exit codes: later, the content is another one, not copied
PIN_S = 7 * 86400.0  # a job waits for its data this long at most
BLOCK = 1 << 20


class StagingError(Exception):
    """Why staging ends, and the exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


def nothing() -> None:
    """The default between two effects."""


def manifest(directory: str, passed: Callable[[], None] = nothing) -> tuple[str, int]:
    """The digest of a directory's content (kinds, names, sizes, SHA-256 of files), and its bytes.

    Times, owners and modes do not count, apart from the right to execute. ValueError: there is
    anything but files, directories and links.
    """
    lines: list[list[object]] = []
    total = 0
    for root, folders, files in os.walk(directory):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(root, name)
            told = os.lstat(path)
            where = os.path.relpath(path, directory)
            if os.path.islink(path):
                lines.append(["link", where, os.readlink(path)])
            elif os.path.isdir(path):
                lines.append(["directory", where])
            elif os.path.isfile(path):
                seal = hashlib.sha256()
                with open(path, "rb") as file:
                    for block in iter(lambda: file.read(BLOCK), b""):
                        seal.update(block)
                        passed()
                runs = bool(told.st_mode & 0o100)
                lines.append(["file", where, told.st_size, runs, seal.hexdigest()])
                total += told.st_size
            else:
                raise ValueError(f"{path} is no file, directory or link")
    lines.sort(key=lambda line: os.fsencode(str(line[1])))
    return hashlib.sha256(json.dumps(lines).encode("ascii")).hexdigest(), total


class DataCache:
    """The cache directory of one user. `now_s`: the clock, in seconds."""

    def __init__(
        self,
        root: str,
        most_bytes: float,
        now_s: Callable[[], float] = time.time,
        passed: Callable[[], None] = nothing,
    ) -> None:
        """`passed` is called between effects, so that a test can die there.

        StagingError: others could write into the directory, or it cannot be made.
        """
        self.root, self.most_bytes, self.now_s, self.passed = root, most_bytes, now_s, passed
        try:
            os.makedirs(root, mode=0o700, exist_ok=True)
            if not is_ours_alone(root):
                raise StagingError(f"{root} is not a directory of yours alone", FAILED)
            for name in ("entries", "partial", "locks", "pins", "trash", "sizes"):
                os.makedirs(self.path(name), mode=0o700, exist_ok=True)
        except OSError as error:
            raise StagingError(f"{root} cannot be the cache: {error}", FAILED) from None

    def path(self, *names: str) -> str:
        """A place in the cache."""
        return os.path.join(self.root, *names)

    def has(self, digest: str) -> bool:
        """Whether this content is a complete entry."""
        return os.path.isdir(self.path("entries", digest))

    def stage(
        self,
        digest: str,
        size: int,
        source: str,
        pin: str,
        told: Callable[[int], None] = lambda _done: None,
    ) -> None:
        """Make this content an entry. Its pin exists already, so the entry stays.

        StagingError: why it cannot be staged.
        """
        with CacheLock(self.path("locks", digest), fcntl.LOCK_SH):  # a drop forgets ended pins
            self.pin(digest, pin)
        with CacheLock(self.path("locks", "stage." + digest), fcntl.LOCK_EX):
            self.passed()
            if self._is_there(digest):
                return
            self._make_room(digest, size)
            self._copy(digest, source, told)
            self._verify(digest)
            os.sync()  # the content is on the disk before its name
            self.passed()
            os.rename(self.path("partial", digest), self.path("entries", digest))
            self.passed()
            sync_directory(self.path("entries"))
            self.used(digest)

    def _is_there(self, digest: str) -> bool:
        """Whether it is an entry. Its pin keeps it: no process drops it between the two."""
        with CacheLock(self.path("locks", digest), fcntl.LOCK_SH):
            found = self.has(digest)
        if found:
            self.used(digest)
        return found

    def pin(self, digest: str, key: str) -> None:
        """Keep the entry for a waiting job. A pin that is not removed expires."""
        path = self.path("pins", f"{digest}.{key}")
        with open(path + ".next", "w") as file:
            file.write(f"{self.now_s() + PIN_S:.0f}\n")
        self.passed()
        os.rename(path + ".next", path)
        self.passed()

    def used(self, digest: str) -> None:
        """Set the last use of an entry to now."""
        path = self.path("locks", digest)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        os.utime(path, (self.now_s(), self.now_s()))

    def _make_room(self, digest: str, size: int) -> None:
        """Drop the entries with the oldest last use until this one fits."""
        if size > self.most_bytes:
            raise StagingError(f"{size} bytes are more than the cache may hold", FULL)
        with CacheLock(self.path("locks", "room"), fcntl.LOCK_EX):
            self._sweep()
            with open(self.path("sizes", digest), "w") as file:
                file.write(f"{size}\n")
            self.passed()
            while self._bytes() > self.most_bytes:
                if not any(self._drop(other) for other in self._oldest(digest)):
                    os.unlink(self.path("sizes", digest))
                    raise StagingError("the cache is full of data that jobs use or wait for", FULL)

    def _bytes(self) -> int:
        """The bytes of all entries, and of unfinished ones. A size without either was left by a
        kill.
        """
        total = 0
        for digest in os.listdir(self.path("sizes")):
            there = self.has(digest) or os.path.isdir(self.path("partial", digest))
            if there or _is_held(self.path("locks", "stage." + digest)):
                with open(self.path("sizes", digest)) as file:
                    total += int(file.read() or 0)
        return total

    def _oldest(self, but: str) -> list[str]:
        """Entries and abandoned copies, the one with the oldest last use first."""
        found = {*os.listdir(self.path("entries")), *os.listdir(self.path("partial"))} - {but}
        return sorted(found, key=lambda one: (_changed_s(self.path("locks", one)), one))

    def _drop(self, digest: str) -> bool:
        """Drop an entry, unless a job uses it, waits for it, or stages it. Whether it is gone."""
        whole = self.has(digest)
        kind, lock = ("entries", digest) if whole else ("partial", "stage." + digest)
        try:
            with CacheLock(self.path("locks", lock), fcntl.LOCK_EX | fcntl.LOCK_NB):
                if whole and self._is_pinned(digest):
                    return False
                gone = self.path("trash", f"{digest}.{os.getpid()}")
                os.rename(self.path(kind, digest), gone)
                self.passed()
                for ended in self._pins(digest) if whole else ():
                    os.unlink(self.path("pins", ended))
                os.unlink(self.path("sizes", digest))
        except BlockingIOError:
            return False
        except FileNotFoundError:
            pass
        self.passed()
        self._sweep()
        return True

    def _is_pinned(self, digest: str) -> bool:
        return any(self._pinned_until(name) > self.now_s() for name in self._pins(digest))

    def _pins(self, digest: str) -> list[str]:
        return [one for one in os.listdir(self.path("pins")) if one.startswith(digest + ".")]

    def _pinned_until(self, name: str) -> float:
        try:
            with open(self.path("pins", name)) as file:
                return float(file.read() or 0)
        except FileNotFoundError:
            return 0.0

    def _sweep(self) -> None:
        for left in os.listdir(self.path("trash")):
            shutil.rmtree(self.path("trash", left), ignore_errors=True)

    def _copy(self, digest: str, source: str, told: Callable[[int], None]) -> None:
        """Copy into `partial`, and continue a former try."""
        place = self.path("partial", digest, "data")
        os.makedirs(place, mode=0o700, exist_ok=True)
        self.passed()
        watch = CopyWatch(place, told)
        try:
            if os.path.isdir(source):
                copy_tree(source, place, self.passed)
            else:
                words = ["rsync", "-a", "--partial", "--delete", "--no-owner", "--no-group"]
                words.append("--chmod=Du+rwx")  # a directory that is not ours to write never goes
                code = subprocess.call([*words, source.rstrip("/") + "/", place + "/"])
                if code:
                    raise StagingError(f"rsync of {source} ended with {code}", FAILED)
        except OSError as error:
            raise StagingError(f"{source} was not copied: {error}", FAILED) from None
        finally:
            watch.end()
        self.passed()

    def _verify(self, digest: str) -> None:
        place = self.path("partial", digest, "data")
        found, _ = manifest(place, self.passed)
        if found != digest:
            shutil.rmtree(self.path("partial", digest), ignore_errors=True)
            raise StagingError(f"the source has other content: sha256:{found}", DIFFERS)
        for root, _, files in os.walk(place):  # a job shall not change it by mistake
            for name in files:
                path = os.path.join(root, name)
                if not os.path.islink(path):
                    os.chmod(path, os.stat(path).st_mode & 0o555)
        self.passed()


def is_ours_alone(path: str) -> bool:
    """Whether it is a directory, no link, of this user, that no other user may write into."""
    told = os.lstat(path)
    ours = told.st_uid == os.geteuid() and not told.st_mode & 0o022
    return stat.S_ISDIR(told.st_mode) and ours


class CacheLock:
    """A lock on a file, until the end of the block or of the process."""

    def __init__(self, path: str, how: int) -> None:
        self._path, self._how = path, how

    def __enter__(self) -> None:
        self._file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._file, self._how)
        except BaseException:
            os.close(self._file)
            raise

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _is_held(path: str) -> bool:
    try:
        with CacheLock(path, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return False
    except BlockingIOError:
        return True


def _changed_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def copy_tree(source: str, place: str, passed: Callable[[], None]) -> None:
    """Make `place` like `source`. A file with the same size and time counts as copied."""
    there = set(os.listdir(place))
    for entry in sorted(os.scandir(source), key=lambda one: one.name):
        target = os.path.join(place, entry.name)
        there.discard(entry.name)
        if entry.is_symlink():
            if os.path.lexists(target):
                _remove(target)
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            if os.path.islink(target) or not os.path.isdir(target):
                _remove(target)
                os.mkdir(target, 0o700)
            copy_tree(entry.path, target, passed)
        else:
            told = entry.stat()
            try:
                mine = os.lstat(target)
                same = (mine.st_size, mine.st_mtime_ns) == (told.st_size, told.st_mtime_ns)
            except FileNotFoundError:
                same = False
            if not same:
                _remove(target)
                shutil.copyfile(entry.path, target)
                passed()
                shutil.copystat(entry.path, target)  # its time says that it is whole
        passed()
    for name in there:
        _remove(os.path.join(place, name))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def sync_directory(path: str) -> None:
    """Wait until the names in the directory are on disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class CopyWatch:
    """Reports every second how many bytes a directory has."""

    def __init__(self, place: str, told: Callable[[int], None]) -> None:
        self._place, self._told, self._over = place, told, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(1.0):
            self._told(self.count())

    def count(self) -> int:
        """The present bytes."""
        total = 0
        for root, _, files in os.walk(self._place):
            for name in files:
                with suppress(OSError):
                    total += os.lstat(os.path.join(root, name)).st_size
        return total

    def end(self) -> None:
        """Report once more, and stop."""
        self._over.set()
        self._thread.join()
        self._told(self.count())


def tell(name: str, size: int) -> Callable[[int], None]:
    """A function that writes the progress to the log, and to dlq as steps of megabytes."""
    beats = os.environ.get("DLQ_BEAT_FILE")

    def told(done: int) -> None:
        print(f"staging {name}: {done / 1e9:.1f} of {size / 1e9:.1f} GB", flush=True)
        if beats:
            total = max(1, round(size / 1e6))
            beat = {
                "v": 1,
                "step": min(total, round(done / 1e6)),
                "total": total,
                "loss": None,
                "time_s": time.time(),
            }
            with suppress(OSError):  # a lost beat stops nothing
                with open(beats + ".next", "w") as file:
                    json.dump(beat, file)
                os.rename(beats + ".next", beats)

    return told


def main(words: Sequence[str]) -> int:
    """`CACHE MOST_BYTES PIN`, and then `NAME DIGEST BYTES SOURCE` for each dataset."""
    parser = argparse.ArgumentParser(description="Stage data into a cache by content.")
    parser.add_argument("cache")
    parser.add_argument("most_bytes", type=float)
    parser.add_argument("pin")
    parser.add_argument("data", nargs="+")
    given = parser.parse_args(words)
    try:
        cache = DataCache(given.cache, given.most_bytes)
        for at in range(0, len(given.data), 4):
            name, digest, size, source = given.data[at : at + 4]
            cache.stage(digest, int(size), source, given.pin, tell(name, int(size)))
            print(f"staged {name}: sha256:{digest}", flush=True)
    except StagingError as error:
        print(f"staging failed: {error}", file=sys.stderr, flush=True)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
