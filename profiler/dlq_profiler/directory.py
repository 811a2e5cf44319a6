"""A directory of recordings: all of them, the hooks' reports, and the unreadable files."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlq_profiler.job import job_of
from dlq_profiler.process import profiles_of
from dlq_profiler.records.layout import SUFFIX
from dlq_profiler.records.recording import RecordFile, RecordingError, read_recording
from dlq_profiler.results import JobProfile, ProcessProfile, Tensors

TENSORS_SUFFIX = ".tensors.json"
TENSORS_VERSION = 1
_LARGEST_TENSORS_FILE = 16 << 20  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The content of a directory. `tensors`: the hook's report, by pid."""

    recordings: tuple[RecordFile, ...]
    tensors: dict[int, tuple[Tensors, ...]]
    refused: tuple[RecordingError, ...]  # files that could not be used, and why


def read_directory(path: Path) -> Contents:
    """Read all that a host recorded; a bad file is left out. Raises OSError."""
    recordings, refused = [], []
    tensors: dict[int, tuple[Tensors, ...]] = {}
    for name in sorted(os.listdir(path)):
        try:
            if name.endswith(SUFFIX):
                recordings.append(read_recording(path / name))
            elif name.endswith(TENSORS_SUFFIX):
                pid, told = read_tensors(path / name)
                tensors[pid] = (*tensors.get(pid, ()), *told)
        except RecordingError as error:
            refused.append(error)
    return Contents(recordings=tuple(recordings), tensors=tensors, refused=tuple(refused))


def profile_directories(
    paths: Sequence[Path], *, world_size: int | None = None
) -> tuple[JobProfile, tuple[RecordingError, ...]]:
    """The job whose hosts recorded into these directories, and the useless files."""
    processes: list[ProcessProfile] = []
    refused: list[RecordingError] = []
    for path in paths:
        contents = read_directory(path)
        processes += profiles_of(contents.recordings, contents.tensors)
        refused += contents.refused
    return job_of(processes, world_size=world_size), tuple(refused)


def read_tensors(path: Path) -> tuple[int, tuple[Tensors, ...]]:
    """Pid and models of one file of the hook. Raises RecordingError for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_TENSORS_FILE:
                raise RecordingError(path, "it is no file of the hook")
            facts = json.loads(file.read(_LARGEST_TENSORS_FILE).decode("utf-8"))
    except OSError as error:
        raise RecordingError(path, (error.strerror or str(error)).lower()) from None
    except (ValueError, RecursionError):
        raise RecordingError(path, "it is not JSON") from None
    try:
        if facts["version"] != TENSORS_VERSION:
            raise RecordingError(
                path, f"it has version {facts['version']!r}, not {TENSORS_VERSION}"
            )
        return _positive(facts["pid"]), tuple(_model(model) for model in facts["models"])
    except (KeyError, TypeError, ValueError):
        raise RecordingError(path, "it does not have the hook's figures") from None


def _model(facts: Any) -> Tensors:
    return Tensors(
        tuple(_positive(parameter["bytes"]) for parameter in facts["parameters"]),
        _positive(facts["bucket_cap_bytes"]),
        _positive(facts["first_bucket_bytes"]),
    )


def _positive(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value
