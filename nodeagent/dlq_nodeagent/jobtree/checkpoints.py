"""Finds the newest committed checkpoint of an attempt: by dlq_train's marker, or by a glob."""

import fnmatch
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from dlq_nodeagent.jobtree.files import json_object, read_small, whole_number
from dlq_nodeagent.model.errands import SeenCheckpoint

MARKER = "COMMITTED"
INCOMPLETE = ".incomplete"
# A directory of a job can hold anything; entries beyond this number are not read.
_MOST_ENTRIES = 10_000
_MOST_DEPTH = 8
_ANY_DEPTH = "**"
_MOST_MARKER_BYTES = 4 * 1024 * 1024
_NUMBER = re.compile(r"(\d{1,18})(?=\D*\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWatch:
    """The place and form of a job's checkpoints.

    Without a marker glob, checkpoints are directories with a COMMITTED file. A glob is relative to
    the directory. A part matches one level (`*`, `?`, `[...]`), and `**` any number of directories,
    also none. Links are not followed, no path is deeper than eight levels, and one look sees 10,000
    entries at most. A match with a name of its own (`step-*.pt`) is the checkpoint. If its name is
    fixed (`*/done.json`), the checkpoint is its directory. A match counts once it has not been
    written for `settle_s`, and only if it is newer than the floor (`floor_of_attempt`). An
    unmodified script's directory outlives attempts.
    """

    directory: str
    marker: str = ""
    settle_s: float = 0.0
    floor_mtime_ns: int = 0
    uid: int | None = None
    """The owner of the checkpoints that count; None: any user's checkpoints count."""


def newest_checkpoint(watch: CheckpointWatch, *, wall_s: float) -> SeenCheckpoint | None:
    """The newest committed checkpoint by file system time; None: there is none."""
    if watch.marker:
        return _newest_settled(watch, wall_s)
    found = max(_marked(watch), default=None)
    if found is None:
        return None
    mtime_ns, path = found
    return SeenCheckpoint(
        path=path,
        step=_marked_step(path),
        mtime_ns=mtime_ns,
        age_s=max(0.0, wall_s - mtime_ns / 1e9),
        evidence="marker",
    )


def floor_of_attempt(watch: CheckpointWatch) -> int:
    """The floor for a coming attempt, in ns: all existing checkpoints, and this moment.

    This moment too, because an old file may get a matching name later: submitit renames its pickle
    once it knows the job's number. A save within one tick of the file system's clock from here
    (milliseconds; a second on old ones) does not count.
    """
    if not watch.marker:
        return 0
    newest = max((mtime_ns for mtime_ns, _ in _matches(watch)), default=0)
    return max(newest, _file_system_now_ns(watch.directory))


def _file_system_now_ns(directory: str) -> int:
    """The clock that stamps files there, perhaps a server's; 0: nothing can be written."""
    try:
        # Without a name where the file system knows such files, else deleted at once.
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return 0


def _marked(watch: CheckpointWatch) -> Iterator[tuple[int, str]]:
    for name, kind in _entries(watch.directory):
        path = os.path.join(watch.directory, name)
        if not stat.S_ISDIR(kind.st_mode) or name.endswith(INCOMPLETE):
            continue
        marker = _facts(os.path.join(path, MARKER))
        if marker is None or watch.uid not in (None, kind.st_uid):
            continue
        if stat.S_ISREG(marker.st_mode) and watch.uid in (None, marker.st_uid):
            yield marker.st_mtime_ns, path


def _marked_step(path: str) -> int | None:
    marker = read_small(os.path.join(path, MARKER), most_bytes=_MOST_MARKER_BYTES)
    step = None if marker is None else whole_number(json_object(marker).get("step"))
    return _named_step(path) if step is None else step


def _newest_settled(watch: CheckpointWatch, wall_s: float) -> SeenCheckpoint | None:
    settled_ns = round((wall_s - watch.settle_s) * 1e9)
    found = max(
        ((m, p) for m, p in _matches(watch) if watch.floor_mtime_ns < m <= settled_ns), default=None
    )
    if found is None:
        return None
    mtime_ns, path = found
    whole = os.path.dirname(path) if _lies_in_checkpoint(watch.marker) else path
    return SeenCheckpoint(
        path=whole,
        step=_named_step(whole),
        mtime_ns=mtime_ns,
        age_s=max(0.0, wall_s - mtime_ns / 1e9),
        evidence="settled",
    )


def _lies_in_checkpoint(marker: str) -> bool:
    parts = _parts(marker)
    return len(parts) > 1 and not any(sign in parts[-1] for sign in "*?[")


def _parts(marker: str) -> list[str]:
    parts: list[str] = []
    for part in marker.split("/"):
        # Twice any depth is any depth.
        if part and not (part == _ANY_DEPTH and parts[-1:] == [_ANY_DEPTH]):
            parts.append(part)
    return [*parts, "*"] if parts[-1:] == [_ANY_DEPTH] else parts


def _matches(watch: CheckpointWatch) -> Iterator[tuple[int, str]]:
    parts = _parts(watch.marker)
    if ".." in parts or len(parts) > _MOST_DEPTH:
        return
    listing = _Listing()
    level = [watch.directory]
    for part in parts:
        if part == _ANY_DEPTH:
            level = listing.with_all_below(level)
        else:
            level = [path for path, _ in listing.of(level, part)]
    for path in level:
        facts = _facts(path)
        if facts is None or stat.S_ISLNK(facts.st_mode):
            continue
        if watch.uid in (None, facts.st_uid):
            yield facts.st_mtime_ns, path


class _Listing:
    """The directories of one look, each listed once; none any more once it has seen enough."""

    def __init__(self) -> None:
        self._left = _MOST_ENTRIES
        self._listed: dict[str, list[tuple[str, os.stat_result]]] = {}

    def of(self, directories: list[str], pattern: str) -> Iterator[tuple[str, os.stat_result]]:
        for directory in directories:
            for name, facts in self._entries(directory):
                if fnmatch.fnmatchcase(name, pattern):
                    yield os.path.join(directory, name), facts

    def with_all_below(self, directories: list[str]) -> list[str]:
        found, level = list(directories), directories
        for _ in range(_MOST_DEPTH):
            level = [path for path, it in self.of(level, "*") if stat.S_ISDIR(it.st_mode)]
            found += level
        return found

    def _entries(self, directory: str) -> list[tuple[str, os.stat_result]]:
        if directory not in self._listed:
            self._listed[directory] = list(islice(_entries(directory), self._left))
            self._left -= len(self._listed[directory])
        return self._listed[directory]


def _entries(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    """Names and facts of a directory's entries, links not followed; empty if it is no directory."""
    facts = _facts(directory)
    if facts is None or not stat.S_ISDIR(facts.st_mode):
        return
    try:
        with os.scandir(directory) as entries:
            for number, entry in enumerate(entries):
                if number >= _MOST_ENTRIES:
                    return
                if _is_text(entry.name):
                    yield entry.name, entry.stat(follow_symlinks=False)
    except OSError:
        return


def _is_text(name: str) -> bool:
    """Whether a name can be sent: file names are bytes, and a job may use any."""
    try:
        return name.isprintable() and bool(name.encode("utf-8"))
    except UnicodeEncodeError:
        return False


def _facts(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _named_step(path: str) -> int | None:
    """The last number in a checkpoint's name: `step-000123`, `ckpt_40.pt`."""
    found = _NUMBER.search(os.path.basename(path))
    return int(found[1]) if found else None
