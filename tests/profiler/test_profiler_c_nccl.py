"""NCCL: through its own plugin interface, and through wrappers where that cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hatch_build
import pytest

from dlq_profiler.records.layout import ConnKind, Op, RecordFlag, RecordSource
from support.watched_programs import ROOT, Profiling, calls, compile_program, run

Program = Callable[[str], Path]

VERSIONS = [1, 2, 3, 4, 5]
ALL_REDUCE, SEND = (Op.ALL_REDUCE, 2000, 0), (Op.P2P_SEND, 70, 0)
FLOAT16, INT8 = 6, 0


@pytest.fixture
def plugin() -> Path:
    return ROOT / hatch_build.PROFILER_LIBRARIES / hatch_build.PLUGIN_NAME


@pytest.mark.parametrize("version", VERSIONS)
def test_collectives_have_their_bytes_in_every_version(
    profiling: Profiling, program: Program, plugin: Path, version: int
) -> None:
    profiling.environment["LD_PRELOAD"] = ""
    ran = profiling.run(program("mock_nccl.c"), plugin, str(version))
    mask = 0x600 if version == 5 else 0x6
    assert ran.stdout.splitlines() == [
        f"init 0 mask {mask:x}",
        "start 0 handle 0",
        "start 0 handle 0",
        "start 0",
        "state 0 stop 0",
        "finalize 0",
    ]
    recording = profiling.recording()
    assert recording.source == RecordSource.NCCL_PLUGIN
    assert calls(recording) == [ALL_REDUCE, SEND]
    collective, send = recording.records
    assert collective["aux2"] & 0xFF == FLOAT16
    assert send["aux2"] == INT8 | (3 << 8 if version < 5 else 0)
    assert collective["aux"] == (5 if version < 5 else 0)
    assert (collective["address"] != 0) == (version < 5)
    assert send["flags"] == (RecordFlag.CAPTURED if version == 5 else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_communicator_is_named(
    profiling: Profiling, program: Program, plugin: Path, version: int
) -> None:
    profiling.environment["LD_PRELOAD"] = ""
    profiling.run(program("mock_nccl.c"), plugin, str(version))
    (conn,) = profiling.recording().conns
    assert conn["kind"] == ConnKind.COMMUNICATOR
    assert (conn["id"], conn["fd"], bytes(conn["name"])) == (0xABCDEF, 1, b"world")
    assert (conn["ranks"], conn["remote"]) == ((4, 2) if version >= 4 else (0, 0))


def test_without_a_directory_the_plugin_asks_for_nothing(program: Program, plugin: Path) -> None:
    for version in VERSIONS:
        assert "mask 0\n" in run(program("mock_nccl.c"), plugin, str(version)).stdout


def test_both_files_of_a_process_stay_below_16_mib(
    profiling: Profiling, program: Program, plugin: Path
) -> None:
    profiling.environment["LD_PRELOAD"] = ""
    profiling.run(program("mock_nccl.c"), plugin, "5")
    del profiling.environment["LD_PRELOAD"]
    profiling.run(program("calls.c"))
    one, other = (path.stat().st_size for path in profiling.directory.glob("*.dlqprof"))
    tables = min(one, other) - (1 << 20)  # the plugin needs of its own what its communicators take
    assert 0 < tables < 1 << 20
    assert one + other - tables < 16 << 20


def test_switched_off_nothing_is_written(
    library: Path, tmp_path: Path, program: Program, plugin: Path
) -> None:
    profiling = Profiling(library, tmp_path / "off", on=False, environment={"LD_PRELOAD": ""})
    ran = profiling.run(program("mock_nccl.c"), plugin, "5")
    assert "mask 600" in ran.stdout  # it may be switched on later
    assert profiling.recordings() == []


@pytest.fixture(params=["linked", "opened"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    flags = ["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-Wno-attribute-alias"]
    compile_program(tmp_path, "stub_nccl.c", flags=flags, name="libnccl.so.2")
    linked = [f"-L{tmp_path}", "-l:libnccl.so.2"]
    flags = linked if request.param == "linked" else ["-DVIA_DLOPEN"]
    return compile_program(tmp_path, "nccl_client.c", flags=flags)


def test_wrappers_record_what_nccl_accepted(profiling: Profiling, client: Path) -> None:
    profiling.environment["LD_LIBRARY_PATH"] = str(client.parent)
    ran = profiling.run(client)
    assert ran.stdout == "0 0 5 0\n"
    recording = profiling.recording()
    assert calls(recording) == [
        (Op.ALL_REDUCE, 4000, 0),
        (Op.BROADCAST, 240, 0),
        (Op.ALL_REDUCE, 1000, 0),
    ]
    assert recording.records["conn"].tolist() == [1, 2, 1]
    assert [(int(c["ranks"]), int(c["fd"])) for c in recording.conns] == [(4, 1), (2, 0)]
    assert recording.records["aux2"].tolist() == [7, 8 | 3 << 8, 9]
