"""Whatever is wrong with the directory or its control file: the program runs as if alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlq_profiler.records.control import NAME, read_control, switch
from dlq_profiler.records.recording import RecordingError
from support.waiting import wait_until
from support.watched_programs import Profiling, Ran, have, run

Program = Callable[[str], Path]


@pytest.fixture
def alone(program: Program) -> Ran:
    return run(program("calls.c"))


def test_no_directory(profiling: Profiling, program: Program, alone: Ran) -> None:
    shutil.rmtree(profiling.directory)
    assert profiling.run(program("calls.c")) == alone
    assert not profiling.directory.exists()


def test_no_variable(profiling: Profiling, program: Program, alone: Ran) -> None:
    assert run(program("calls.c"), environment={"LD_PRELOAD": str(profiling.library)}) == alone


@pytest.mark.parametrize(
    "content",
    [b"", b"DLQPCTL\0", b"x" * 64, b"DLQPCTL\0\2\0\0\0\1\0\0\0" + bytes(48)],
    ids=["empty", "cut short", "another file", "another version"],
)
def test_no_control_file_of_this_version(
    profiling: Profiling, program: Program, alone: Ran, content: bytes
) -> None:
    (profiling.directory / NAME).write_bytes(content)
    assert profiling.run(program("calls.c")) == alone
    assert profiling.recordings() == []


def test_control_is_a_link(profiling: Profiling, program: Program, alone: Ran) -> None:
    control = profiling.directory / NAME
    control.rename(profiling.directory / "other")
    control.symlink_to(profiling.directory / "other")
    assert profiling.run(program("calls.c")) == alone
    assert profiling.recordings() == []


def test_switched_off_from_the_start(
    library: Path, tmp_path: Path, program: Program, alone: Ran
) -> None:
    profiling = Profiling(library, tmp_path / "off", on=False)
    assert profiling.run(program("calls.c")) == alone
    assert os.listdir(profiling.directory) == [NAME]


def test_more_processes_than_files(library: Path, tmp_path: Path, program: Program) -> None:
    profiling = Profiling(library, tmp_path / "few", file_limit=2)
    assert profiling.run(program("processes.c")) == run(program("processes.c"))
    assert len(profiling.recordings()) == 2
    assert read_control(profiling.directory).files_opened == 6


def test_a_file_size_limit_brings_no_signal(
    profiling: Profiling, program: Program, alone: Ran
) -> None:
    limited = f"ulimit -f 64; exec {program('calls.c')}"
    assert profiling.run("sh", "-c", limited) == alone
    assert profiling.recordings() == []


def test_no_descriptor_left_for_a_file(profiling: Profiling, program: Program) -> None:
    limited = f"ulimit -n 4; exec {program('signals.c')}"
    assert profiling.run("sh", "-c", limited).returncode == 0


def test_address_space_limit(profiling: Profiling, program: Program, alone: Ran) -> None:
    limited = f"ulimit -v 12000; exec {program('calls.c')}"
    assert run("sh", "-c", limited) == alone
    assert profiling.run("sh", "-c", limited) == alone


@contextmanager
def _small_disk(where: Path, bytes_: int) -> Iterator[Path]:
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={bytes_},mode=777", "none", str(where)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("no mount without root")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.mark.parametrize("pages", [1, 2, 3, 4, 8, 21, 40, 60])
def test_a_directory_that_is_or_becomes_full(
    library: Path, tmp_path: Path, program: Program, pages: int
) -> None:
    with _small_disk(tmp_path / "disk", pages * 4096) as disk:
        profiling = Profiling(library, disk)
        ran = profiling.run(program("threads.c"), "together", "40", "200")
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")
        assert profiling.run(program("threads.c"), "after", "1", "5000") == ran
        for recording in profiling.recordings():
            assert len(recording.records) + recording.lost in (40 * 200, 5000)
        assert len(profiling.recordings()) <= 1 or pages > 20


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_directory_of_somebody_else(
    library: Path, tmp_path: Path, program: Program, alone: Ran, mode: int
) -> None:
    for directory in (*tmp_path.parents[:3], tmp_path):
        directory.chmod(directory.stat().st_mode | 0o055)
    binary = Path(shutil.copy(program("calls.c"), tmp_path / "calls"))
    profiling = Profiling(Path(shutil.copy(library, tmp_path / "lib.so")), tmp_path / "closed")
    profiling.directory.chmod(mode)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
    try:
        assert profiling.run(*as_nobody, binary) == alone
    finally:
        profiling.directory.chmod(0o700)
    assert profiling.recordings() == []


def test_recording_is_switched_in_a_running_program(
    library: Path, tmp_path: Path, program: Program
) -> None:
    profiling = Profiling(library, tmp_path / "switched", on=False)
    argv = [str(program("threads.c")), "forever", "2", "100"]
    child = subprocess.Popen(argv, env={**os.environ, **profiling.variables()})

    def written() -> int:
        try:
            return sum(len(r.records) + r.lost for r in profiling.recordings())
        except RecordingError:  # it is just being made
            return 0

    def it_ran_on() -> None:
        before = _cpu_ticks(child.pid)
        wait_until(lambda: _cpu_ticks(child.pid) > before + 2, what="the program runs on")

    try:
        it_ran_on()
        assert written() == 0
        switch(profiling.directory, on=True)
        wait_until(lambda: written() > 0, what="records once it is on")
        switch(profiling.directory, on=False)
        it_ran_on()  # what was under way when it was switched is done
        standing = written()
        it_ran_on()
        assert written() == standing
        switch(profiling.directory, on=True)
        wait_until(lambda: written() > standing, what="records once it is on again")
    finally:
        child.kill()
        child.wait()


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_process_that_was_refused_a_file_is_not_asked_again(
    library: Path, tmp_path: Path, program: Program
) -> None:
    """Once it is clear that nothing will be written, calls make no system call of ours."""
    if not have("strace"):
        pytest.skip("no strace here")
    profiling = Profiling(library, tmp_path / "none", file_limit=1)
    profiling.run(program("calls.c"))
    told = tmp_path / "trace"
    argv = ["strace", "-f", "-o", str(told), "-e", "trace=getsockopt", str(program("threads.c"))]
    assert profiling.run(*argv, "after", "1", "500").returncode == 0
    assert told.read_text().count("getsockopt") < 5
