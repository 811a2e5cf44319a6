"""A directory of recordings, its switch, and what is put into a program's environment."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlq_profiler.directory import profile_directories, read_directory, read_tensors
from dlq_profiler.injection import Parts, built, injected
from dlq_profiler.records import control
from dlq_profiler.records.recording import RecordingError
from dlq_profiler.results import Method, TrafficConfidence
from support.model_shapes import buckets, tensors
from support.traffic import ring_rank, write_file

SIZES = tensors("googlenet")
HOOK: dict[str, Any] = {
    "version": 1, "method": "torch-ddp", "pid": 100, "rank": 0, "world_size": 2,
    "models": [{
        "bucket_cap_bytes": 26214400, "first_bucket_bytes": 1048576,
        "parameters": [{"name": "p", "elements": size // 4, "bytes": size, "dtype": "float32"}
                       for size in SIZES],
    }],
}  # fmt: skip


def host(path: Path, rank: int) -> Path:
    path.mkdir()
    tape = ring_rank([list(buckets(SIZES))] * 7, rank=rank, ranks=2)
    write_file(
        path / f"{100 + rank}-1.dlqprof", tape, threads=3, pid=100 + rank,
        identity=f"RANK={rank}\nWORLD_SIZE=2\n",
    )  # fmt: skip
    return path


def test_two_hosts_make_one_job(tmp_path: Path) -> None:
    hosts = [host(tmp_path / str(rank), rank) for rank in range(2)]
    found, refused = profile_directories(hosts)
    assert refused == ()
    assert (found.processes, found.model_bytes, found.buckets) == (
        2,
        sum(SIZES),
        tuple(buckets(SIZES)),
    )
    one, _ = profile_directories(hosts[:1])
    assert (one.processes, one.model_bytes) == (1, sum(SIZES))


def test_one_bad_file_costs_one_file(tmp_path: Path) -> None:
    here = host(tmp_path / "host", 0)
    (here / "7-7.dlqprof").write_bytes(b"nothing")
    (here / "7-7.tensors.json").write_text("[")
    (here / "notes.txt").write_text("not ours")
    control.write_control(here)
    found, refused = profile_directories([here])
    assert found.model_bytes == sum(SIZES)
    assert [error.path.name for error in refused] == ["7-7.dlqprof", "7-7.tensors.json"]


def test_what_the_hook_told_is_exact(tmp_path: Path) -> None:
    here = host(tmp_path / "host", 0)
    (here / "100-5.tensors.json").write_text(json.dumps(HOOK))
    found, _ = profile_directories([here])
    assert found.sizes == (Method.EXACT, TrafficConfidence.EXACT, None)
    assert found.tensors == tuple(sorted(SIZES, reverse=True))


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"models": [{"parameters": []}]},
        {"models": 3},
        {"pid": "100"},
        {"models": [{**HOOK["models"][0], "parameters": [{"bytes": -4}]}]},
        {"models": [{**HOOK["models"][0], "parameters": [{"bytes": 1.5}]}]},
    ],
)
def test_a_hook_that_tells_something_else_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "1-1.tensors.json"
    path.write_text(json.dumps({**HOOK, **wrong}))
    with pytest.raises(RecordingError):
        read_tensors(path)


def test_the_switch_is_thrown_in_place(tmp_path: Path) -> None:
    path = control.write_control(tmp_path, on=False, file_limit=8, ring_bytes=1 << 20)
    assert path.stat().st_size == 64
    with path.open("rb") as mapped:
        control.switch(tmp_path, on=True)
        assert mapped.read()[12:16] == b"\1\0\0\0"
    assert control.read_control(tmp_path) == (control.RECORD, 8, 0, 1 << 20)
    control.switch(tmp_path, on=False)
    assert control.read_control(tmp_path).mode == control.OFF


def test_no_control_file_is_no_switch(tmp_path: Path) -> None:
    (tmp_path / "control").write_bytes(b"something of the job's")
    with pytest.raises(ValueError, match="cut short"):
        control.switch(tmp_path, on=True)
    (tmp_path / "control").write_bytes(b"x" * 64)
    with pytest.raises(ValueError, match="no control file"):
        control.switch(tmp_path, on=True)


def test_ours_comes_before_what_the_user_has_and_replaces_nothing(tmp_path: Path) -> None:
    parts = Parts(Path("/l/libdlqprof.so"), Path("/l/plugin.so"), Path("/l/hook"))
    theirs = {"LD_PRELOAD": "/u/jemalloc.so", "PYTHONPATH": "/u/lib", "NCCL_PROFILER_PLUGIN": "u"}
    assert injected(theirs, tmp_path, parts) == {
        "DLQ_PROF_DIR": str(tmp_path),
        "LD_PRELOAD": "/l/libdlqprof.so:/u/jemalloc.so",
        "PYTHONPATH": "/l/hook:/u/lib",
    }
    assert injected({}, tmp_path, Parts(parts.preload, parts.nccl_plugin)) == {
        "DLQ_PROF_DIR": str(tmp_path),
        "LD_PRELOAD": "/l/libdlqprof.so",
        "NCCL_PROFILER_PLUGIN": "/l/plugin.so",
    }


def test_without_a_library_nothing_is_injected(tmp_path: Path) -> None:
    assert built(tmp_path, tmp_path / "hook") is None
    (tmp_path / "libdlqprof.so").write_bytes(b"")
    assert built(tmp_path, tmp_path / "hook") == Parts(tmp_path / "libdlqprof.so")
    (tmp_path / "hook").mkdir()
    (tmp_path / "libnccl-profiler-dlq.so").write_bytes(b"")
    assert built(tmp_path, tmp_path / "hook") == Parts(
        tmp_path / "libdlqprof.so", tmp_path / "libnccl-profiler-dlq.so", tmp_path / "hook"
    )


def test_an_empty_directory_is_a_directory(tmp_path: Path) -> None:
    assert read_directory(tmp_path).recordings == ()
