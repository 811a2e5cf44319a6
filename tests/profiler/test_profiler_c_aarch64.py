"""The other processor, emulated: what is preloaded there must not keep a program from starting.

The emulator's fork forgets to clear the page by which a child is recognised, and starts no other
program: children are tested on the machine's own processor only.
"""

from __future__ import annotations

from pathlib import Path

import hatch_build
import pytest

from dlq_profiler.records.layout import Op, RecordSource
from support.watched_programs import (
    Profiling,
    Ran,
    calls,
    compile_library,
    compile_program,
    have,
    run,
)

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
ROOT = "/usr/aarch64-linux-gnu"

pytestmark = [
    pytest.mark.profiler,
    pytest.mark.skipif(not have(COMPILER), reason="needs gcc-aarch64-linux-gnu"),
    pytest.mark.skipif(not have(EMULATOR), reason="needs qemu-user"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("aarch64")
    compile_library(where, name=hatch_build.PLUGIN_NAME, compiler=COMPILER)
    return compile_library(where, compiler=COMPILER)


def emulated(*argv: str | Path, environment: dict[str, str] | None = None) -> Ran:
    """Only the program gets the environment: the emulator is of this processor."""
    given = [word for pair in (environment or {}).items() for word in ("-E", "=".join(pair))]
    return run(EMULATOR, "-L", ROOT, *given, *argv)


@pytest.mark.parametrize(
    ("source", "words", "recorded"),
    [
        ("calls.c", [], 27),
        ("closes.c", [], 4),
        ("threads.c", ["together", "50", "3"], 150),
        ("threads.c", ["after", "300", "1"], 300),
    ],
)
def test_a_program_runs_as_if_alone_and_all_is_recorded(
    profiling: Profiling, tmp_path: Path, source: str, words: list[str], recorded: int
) -> None:
    program = compile_program(tmp_path, source, compiler=COMPILER)
    watched = emulated(program, *words, environment=profiling.variables())
    assert watched == emulated(program, *words)
    recording = profiling.recording()
    assert (len(recording.records), recording.lost) == (recorded, 0)


def test_dlsym_gives_the_wrappers(profiling: Profiling, tmp_path: Path) -> None:
    flags = ["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-Wno-attribute-alias"]
    compile_program(tmp_path, "stub_nccl.c", compiler=COMPILER, flags=flags, name="libnccl.so.2")
    client = compile_program(tmp_path, "nccl_client.c", compiler=COMPILER, flags=["-DVIA_DLOPEN"])
    profiling.environment["LD_LIBRARY_PATH"] = str(tmp_path)
    assert emulated(client, environment=profiling.variables()).stdout == "0 0 5 0\n"
    assert [call[0] for call in calls(profiling.recording())] == [
        Op.ALL_REDUCE,
        Op.BROADCAST,
        Op.ALL_REDUCE,
    ]


@pytest.mark.parametrize("version", ["1", "5"])
def test_the_plugin(profiling: Profiling, tmp_path: Path, version: str) -> None:
    loader = compile_program(tmp_path, "mock_nccl.c", compiler=COMPILER)
    profiling.environment["LD_PRELOAD"] = ""
    plugin = profiling.library.with_name(hatch_build.PLUGIN_NAME)
    emulated(loader, plugin, version, environment=profiling.variables())
    recording = profiling.recording()
    assert recording.source == RecordSource.NCCL_PLUGIN
    assert calls(recording) == [(Op.ALL_REDUCE, 2000, 0), (Op.P2P_SEND, 70, 0)]
