"""Checkpoints on disk: committed whole or not at all, proven by hashes, never lost to a new one.

A checkpoint is a directory `step-000123` with a `COMMITTED` marker inside. It is written as
`step-000123.incomplete`, synced, renamed, and only then marked. A directory without a marker does
not exist for readers. Only the process that owns the directory writes to it.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dlq_train import clock, files

MARKER = "COMMITTED"
INCOMPLETE = ".incomplete"

_PIECE_BYTES = 1 << 20
_NAME = re.compile(r"step-(\d{6,})")


class CheckpointUnusable(Exception):
    """A checkpoint that was promised or found cannot be believed; the text says why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One committed checkpoint."""

    step: int
    path: Path


def commit(
    directory: Path,
    step: int,
    write: Callable[[Path], object],
    *,
    keep: int,
    origin: dict[str, str],
) -> Checkpoint:
    """Let `write` fill a new checkpoint of `step`, make it durable, then drop the oldest.

    A committed, undamaged step is returned as it is. When `write` or the disk fails, the error
    passes through, the half-written directory is gone and older checkpoints are untouched. `origin`
    goes into the marker: job, attempt and fence of the writer.
    """
    final = directory / f"step-{step:06d}"
    if _usable(Checkpoint(step, final)):
        return Checkpoint(step, final)
    started_s = clock.steady_s()
    incomplete = final.with_name(final.name + INCOMPLETE)
    _discard(final)  # damaged, or its writer died between rename and marker
    _discard(incomplete)
    incomplete.mkdir(parents=True)
    try:
        write(incomplete)
        listed = [_seal(path, incomplete) for path in _files_in(incomplete)]
        _sync_directories(incomplete)
        incomplete.rename(final)
        files.sync(directory)
        marker = {"v": 1, "step": step, "time_s": clock.wall_s(), **origin, "files": listed}
        marker["save_s"] = round(clock.steady_s() - started_s, 6)
        files.write_json(final / MARKER, marker, durable=True)
    except BaseException:
        _discard(incomplete)
        _discard(final)
        raise
    _retain(directory, keep=keep)
    return Checkpoint(step, final)


def committed(directory: Path) -> list[Checkpoint]:
    """The marked checkpoints directly in `directory`, newest first; not yet verified."""
    if not directory.is_dir():
        return []
    found = [
        Checkpoint(int(match[1]), path)
        for path in directory.iterdir()
        if (match := _NAME.fullmatch(path.name)) and (path / MARKER).is_file()
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.step, reverse=True)


def candidates(resume_from: Path) -> Iterator[Checkpoint]:
    """The checkpoints from which a job may resume, best first.

    `resume_from` is a checkpoint or an attempt's directory, under `<root>/<job>/<attempt>`. The
    named checkpoint comes first even if newer ones lie beside it, since the master chose it. Then
    come the others of that attempt, then those of earlier attempts, always newest first.
    """
    match = _NAME.fullmatch(resume_from.name)
    attempt_dir = resume_from.parent if match else resume_from
    if match and (resume_from / MARKER).is_file():
        yield Checkpoint(int(match[1]), resume_from)
    for directory in (attempt_dir, *_earlier_attempts(attempt_dir)):
        for checkpoint in committed(directory):
            if checkpoint.path != resume_from:
                yield checkpoint


def verify(checkpoint: Checkpoint) -> None:
    """Compare every listed file's size and hash; raises CheckpointUnusable at the first doubt."""
    try:
        listed = json.loads((checkpoint.path / MARKER).read_text(encoding="utf-8"))["files"]
        for entry in listed:
            _verify_file(checkpoint.path, entry["path"], entry["size"], entry["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointUnusable(f"{checkpoint.path}: {error!r}") from error


def _usable(checkpoint: Checkpoint) -> bool:
    try:
        verify(checkpoint)
    except CheckpointUnusable:
        return False
    return True


def _verify_file(root: Path, name: str, size: int, sha256: str) -> None:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise CheckpointUnusable(f"{root}: the marker names a file outside: {name}")
    path = root / name
    if path.stat().st_size != size:
        raise CheckpointUnusable(f"{path}: {path.stat().st_size} bytes, committed with {size}")
    if _sha256(path) != sha256:
        raise CheckpointUnusable(f"{path}: its bytes are not those that were committed")


def _seal(path: Path, root: Path) -> dict[str, str | int]:
    files.sync(path)
    return {
        "path": path.relative_to(root).as_posix(),
        "size": path.stat().st_size,
        "sha256": _sha256(path),
    }


def _sha256(path: Path) -> str:
    # `hashlib.file_digest` came with Python 3.11, and trainings run on older ones too.
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _files_in(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def _sync_directories(root: Path) -> None:
    for directory, _, _ in os.walk(root):
        files.sync(Path(directory))


def _earlier_attempts(attempt_dir: Path) -> list[Path]:
    """Sibling directories with a lower attempt number, newest first."""
    if not attempt_dir.name.isdecimal() or not attempt_dir.parent.is_dir():
        return []
    number = int(attempt_dir.name)
    earlier = [
        path
        for path in attempt_dir.parent.iterdir()
        if path.name.isdecimal() and int(path.name) < number
    ]
    return sorted(earlier, key=lambda path: int(path.name), reverse=True)


def _retain(directory: Path, *, keep: int) -> None:
    """Drop all but the newest `keep`, and half-written remains of a killed process."""
    kept = {checkpoint.path for checkpoint in committed(directory)[:keep]}
    for path in list(directory.iterdir()):
        if path not in kept and _NAME.fullmatch(path.name.removesuffix(INCOMPLETE)):
            _discard(path)


def _discard(path: Path) -> None:
    """Remove a checkpoint directory, its marker first: half-deleted must not look committed."""
    (path / MARKER).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
