"""The library under the sanitizers: no bad access, no undefined behaviour, no race."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.watched_programs import PROGRAMS, Profiling, compile_library, compile_program, have

pytestmark = pytest.mark.profiler

VERBS = Path("/usr/include/infiniband/verbs.h")
CASES = {
    "address,undefined": "libasan.so",
    "thread": "libtsan.so",
}
# A finding ends the program with this; leaks are the test programs' own.
FINDING = 86
OPTIONS = f"exitcode={FINDING}:halt_on_error=1:detect_leaks=0"


def _runtime(name: str) -> str:
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip(f"gcc has no {name} here")
    return found


@pytest.fixture(scope="module", params=CASES)
def sanitized(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Profiling:
    if not have("gcc"):
        pytest.skip("no gcc here")
    runtime, where = _runtime(CASES[request.param]), tmp_path_factory.mktemp("sanitized")
    flags = [f"-fsanitize={request.param}", "-fno-sanitize-recover=all", "-O1"]
    library = compile_library(where, compiler="gcc", flags=flags, hosted=True)
    for source in ("calls.c", "threads.c", "processes.c", "signals.c", "closes.c"):
        compile_program(where, source, compiler="gcc", flags=flags)
    return Profiling(
        library,
        where / "recorded",
        ring_bytes=1 << 20,
        environment={
            "LD_PRELOAD": f"{runtime} {library}",
            "ASAN_OPTIONS": OPTIONS,
            "TSAN_OPTIONS": OPTIONS,
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
    )


def test_threads_that_overrun_their_rings(sanitized: Profiling) -> None:
    program = sanitized.library.parent / "threads"
    ran = sanitized.run(program, "together", "8", "5000")
    assert ran.returncode == 0, ran.stderr
    ran = sanitized.run(program, "after", "64", "40")
    assert ran.returncode == 0, ran.stderr
    kept = sum(len(recording.records) + recording.lost for recording in sanitized.recordings()[-2:])
    assert kept == 8 * 5000 + 64 * 40


@pytest.mark.skipif(not VERBS.exists(), reason="needs libibverbs-dev")
def test_verbs(sanitized: Profiling) -> None:
    where = sanitized.library.parent
    stub = ["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1"]
    versions = f"-Wl,--version-script={PROGRAMS / 'stub_ibverbs.map'}"
    compile_program(where, "stub_ibverbs.c", flags=[*stub, versions], name="libibverbs.so.1")
    client = compile_program(where, "verbs_client.c", flags=[f"-L{where}", "-l:libibverbs.so.1"])
    sanitized.environment["LD_LIBRARY_PATH"] = str(where)
    ran = sanitized.run(client, "50")
    assert ran.returncode == 0, ran.stderr
    assert len(sanitized.recordings()[-1].records) > 50 * 7


@pytest.mark.parametrize(
    ("program", "code"), [("calls", 7), ("processes", 0), ("closes", 0), ("signals", 0)]
)
def test_programs_end_as_they_should(sanitized: Profiling, program: str, code: int) -> None:
    before = len(sanitized.recordings())
    ran = sanitized.run(sanitized.library.parent / program)
    assert ran.returncode == code, ran.stderr
    assert len(sanitized.recordings()) > before
