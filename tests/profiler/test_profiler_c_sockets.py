"""What the preloaded library writes down of socket calls, and that the program does not notice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dlq_profiler.records.layout import Op, RecordFlag, Side
from support.watched_programs import Profiling, calls, compile_program, have, run

Program = Callable[[str], Path]

STREAM = [
    (Op.SEND, 101, 101),
    (Op.SENDTO, 102, 102),
    (Op.WRITE, 103, 103),
    (Op.WRITEV, 104, 104),
    (Op.SENDMSG, 105, 105),
    (Op.SENDFILE, 106, 106),
    (Op.RECV, 7, 7),
    (Op.RECV, 101, 101),
    (Op.RECVFROM, 102, 102),
    (Op.READ, 103, 103),
    (Op.READV, 104, 104),
    (Op.RECVMSG, 105, 105),
    (Op.RECV, 106, 106),
    (Op.RECV, 10, 0),
]
MANY = [
    (Op.SENDMMSG, 201, 201),
    (Op.SENDMMSG, 202, 202),
    (Op.RECVMMSG, 4096, 201),
    (Op.RECVMMSG, 4096, 202),
]


@pytest.mark.parametrize("compiler", ["cc", "musl-gcc"])
def test_every_call_is_recorded_once_and_the_program_sees_no_difference(
    profiling: Profiling, tmp_path: Path, compiler: str
) -> None:
    if not have(compiler):
        pytest.skip(f"no {compiler} here")
    program = compile_program(tmp_path, "calls.c", compiler=compiler)
    alone, watched = run(program), profiling.run(program)

    assert watched == alone
    assert watched.returncode == 7
    recording = profiling.recording()
    assert calls(recording)[: len(STREAM + MANY)] == STREAM + MANY
    assert recording.lost == 0
    peeked = recording.records[recording.records["flags"] & RecordFlag.PEEK != 0]
    assert [int(r["bytes"]) for r in peeked] == [7]


def test_calls_that_fail_are_recorded_with_their_errno(
    profiling: Profiling, program: Program
) -> None:
    profiling.run(program("calls.c"))
    failed = [call for call in calls(profiling.recording()) if call[2] < 0]
    assert failed == [
        (Op.SEND, 10, -14),
        (Op.WRITEV, 0, -14),
        (Op.SENDMSG, 0, -14),
        (Op.RECVMSG, 0, -14),
        (Op.WRITEV, 0, -22),
        (Op.SEND, 1, -32),
    ]


def test_connections_have_their_ends_and_sides(profiling: Profiling, program: Program) -> None:
    profiling.run(program("calls.c"))
    recording = profiling.recording()
    client, server = recording.conns[:2]
    assert (client["side"], server["side"]) == (Side.CONNECTED, Side.ACCEPTED)
    assert client["local_port"] == server["remote_port"] != 0
    assert client["remote_port"] == server["local_port"] != 0
    assert bytes(client["remote_address"])[:4] == bytes([127, 0, 0, 1])
    assert client["closed_ns"] > client["seen_ns"] > recording.opened_ns


def test_identity_holds_the_rank_and_no_secret(
    profiling: Profiling, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DLQ_NEED_POSTGRES", raising=False)  # the tests' own
    profiling.environment.update(
        RANK="3",
        WORLD_SIZE="4",
        DLQ_JOB_ID="71",
        DLQ_API_TOKEN="secret",
        RANKS="no",
        TF_CONFIG="a\nb",
    )
    profiling.run(program("calls.c"))
    identity = dict(profiling.recording().identity)
    assert identity == {"RANK": "3", "WORLD_SIZE": "4", "DLQ_JOB_ID": "71", "TF_CONFIG": "a b"}


def test_a_descriptor_is_what_it_is_now(profiling: Profiling, program: Program) -> None:
    assert profiling.run(program("closes.c")).returncode == 0
    recording = profiling.recording()
    assert [call[1] for call in calls(recording)] == [10, 11, 12, 13]
    first, second, third, fourth = recording.records["conn"]
    assert first == second == third != fourth
    assert len(recording.conns) == 2


def test_a_forked_child_and_a_new_program_have_files_of_their_own(
    profiling: Profiling, program: Program
) -> None:
    binary = program("processes.c")
    alone, watched = run(binary), profiling.run(binary)
    assert watched == alone
    parent, *others = profiling.recordings()
    assert [call[1] for call in calls(parent)] == [100] * 7 + [300] * 2
    assert sorted(len(other.records) for other in others) == [3, 5, 11, 11, 11]
    assert len({(r.pid, r.opened_ns) for r in [parent, *others]}) == 6
    for other in others:
        assert other.lost == 0
        assert set(other.records["conn"]) == {1}


@pytest.mark.parametrize("order", ["together", "after"])
def test_nothing_of_two_hundred_threads_is_lost(
    profiling: Profiling, program: Program, order: str
) -> None:
    assert profiling.run(program("threads.c"), order, "200", "3").stdout == "done\n"
    recording = profiling.recording()
    assert recording.lost == 0
    assert Counter(recording.records["bytes"].tolist()) == {100 + i: 3 for i in range(200)}


def test_short_threads_share_slots(profiling: Profiling, program: Program) -> None:
    """Five hundred threads, one after the other, fit into 256 slots, and into little room."""
    profiling.run(program("threads.c"), "after", "500", "1")
    recording = profiling.recording()
    assert len(recording.records) == 500
    size = next(profiling.directory.glob("*.dlqprof")).stat()
    assert size.st_blocks * 512 < 4 << 20


def test_a_full_ring_keeps_the_newest_and_counts_the_rest(
    library: Path, tmp_path: Path, program: Program
) -> None:
    profiling = Profiling(library, tmp_path / "small", ring_bytes=256 << 10)
    profiling.run(program("threads.c"), "after", "1", "10000")
    recording = profiling.recording()
    # One thread may hold half of the four chunks.
    assert len(recording.records) == 2048
    assert recording.lost == 10_000 - 2048
    assert recording.records["seq"].tolist() == list(range(10_000 - 2048 + 1, 10_001))


def test_a_busy_thread_leaves_room_for_newcomers(
    library: Path, tmp_path: Path, program: Program
) -> None:
    profiling = Profiling(library, tmp_path / "small", ring_bytes=1 << 20)
    profiling.run(program("threads.c"), "together", "4", "20000")
    recording = profiling.recording()
    kept = Counter(recording.records["bytes"].tolist())
    assert set(kept) == {100, 101, 102, 103}
    assert min(kept.values()) >= 1024
    assert recording.lost + len(recording.records) == 80_000


def test_sends_from_signal_handlers_are_recorded_or_counted(
    profiling: Profiling, program: Program
) -> None:
    ran = profiling.run(program("signals.c"))
    recording = profiling.recording()
    assert ran.returncode == 0
    assert recording.lost + len(recording.records) == int(ran.stdout)
    assert 50 in recording.records["bytes"]


@pytest.mark.parametrize("ours_first", [True, False])
def test_another_preloaded_library_sees_the_same(
    profiling: Profiling, program: Program, tmp_path: Path, ours_first: bool
) -> None:
    """Its dlsym(RTLD_NEXT) must find what comes after it, although dlsym is ours."""
    other = compile_program(tmp_path, "also_preloaded.c", flags=["-shared", "-fPIC"])
    alone = run(program("calls.c"), environment={"LD_PRELOAD": str(other)})
    assert alone.stderr.endswith(" sends\n")
    chain = [profiling.library, other] if ours_first else [other, profiling.library]
    profiling.environment["LD_PRELOAD"] = ":".join(map(str, chain))
    assert profiling.run(program("calls.c")) == alone
    assert calls(profiling.recording())[: len(STREAM)] == STREAM


@pytest.mark.parametrize("compiler", ["cc", "musl-gcc"])
def test_a_thread_in_a_call_can_be_cancelled(
    profiling: Profiling, tmp_path: Path, compiler: str
) -> None:
    if not have(compiler):
        pytest.skip(f"no {compiler} here")
    program = compile_program(tmp_path, "cancel.c", compiler=compiler)
    for _ in range(5):
        assert profiling.run(program).stdout == "clean-up ran\ncancelled 1\n"
    assert all((Op.SEND, 20, 20) in calls(one) for one in profiling.recordings())


def test_a_child_does_not_wait_for_the_loader(profiling: Profiling, program: Program) -> None:
    """Another thread of its parent had the loader's lock, and is not there to give it back."""
    assert profiling.run(program("late.c")) == run(program("late.c"))
    assert [calls(one) for one in profiling.recordings()] == [[(Op.WRITE, 5, 5)]]
