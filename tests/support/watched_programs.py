"""Programs in C that run with the profiler's libraries, and what these wrote down about them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hatch_build

from dlq_profiler.records.control import write_control
from dlq_profiler.records.recording import RecordFile, read_recording

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "profiler" / "tests"
STRICT = ["-Wall", "-Wextra", "-Werror"]
PROGRAM_FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", *STRICT, f"-I{PROGRAMS}", "-pthread"]
# A program must end; this is for one that does not.
PATIENCE_S = 120


def have(compiler: str) -> bool:
    """Whether this machine has that program."""
    return shutil.which(compiler) is not None


def compile_program(
    where: Path, source: str, *, compiler: str = "cc", flags: Sequence[str] = (), name: str = ""
) -> Path:
    """Compile one of profiler/tests; warnings are errors."""
    target = where / (name or Path(source).stem)
    files = [str(PROGRAMS / source)]
    command = [compiler, *PROGRAM_FLAGS, *files, "-o", str(target), *flags]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    return target


def compile_library(
    where: Path,
    *,
    name: str = hatch_build.PRELOAD_NAME,
    compiler: str = "cc",
    flags: Sequence[str] = (),
    hosted: bool = False,
) -> Path:
    """Compile a library of the profiler as the build does; warnings are errors.

    `hosted`: against the C library, as sanitizers need it.
    """
    alone = ["-DDLQPROF_HOSTED"] if hosted else hatch_build.PROFILER_ALONE
    command = hatch_build.profiler_command([compiler], ROOT, name, alone)
    target = where / name
    full = [*command, *STRICT, *flags, "-o", str(target)]
    subprocess.run(full, check=True, timeout=PATIENCE_S)
    return target


@dataclass(frozen=True)
class Ran:
    """How a program ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Profiling:
    """A directory to record into, and a library to do it."""

    library: Path
    directory: Path
    on: bool = True
    file_limit: int = 0
    ring_bytes: int = 0
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(exist_ok=True)
        write_control(
            self.directory, on=self.on, file_limit=self.file_limit, ring_bytes=self.ring_bytes
        )

    def run(self, *argv: str | Path) -> Ran:
        """Run a program to its end with the library preloaded."""
        return run(*argv, environment=self.variables())

    def variables(self) -> dict[str, str]:
        """What the program gets in its environment."""
        return {
            "DLQ_PROF_DIR": str(self.directory),
            "LD_PRELOAD": str(self.library),
            **self.environment,
        }

    def recordings(self) -> list[RecordFile]:
        """Every file, the oldest first."""
        found = [read_recording(path) for path in self.directory.glob("*.dlqprof")]
        return sorted(found, key=lambda recording: recording.opened_ns)

    def recording(self) -> RecordFile:
        """The only file."""
        (only,) = self.recordings()
        return only


def run(*argv: str | Path, environment: Mapping[str, str] | None = None) -> Ran:
    """Run a program to its end."""
    done = subprocess.run(
        [str(part) for part in argv],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def calls(recording: RecordFile) -> list[tuple[int, int, int]]:
    """(op, bytes asked for, result) of each record, by time."""
    return [(int(r["op"]), int(r["bytes"]), int(r["result"])) for r in recording.records]
