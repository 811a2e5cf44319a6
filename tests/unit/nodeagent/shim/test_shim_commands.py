"""The shim's command channel and its log files, fed and read without a runtime in between."""

import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_nodeagent.model.port import ExitWhy, Handle, NotDelivered
from support.process_box import ProcessBox, process_box
from support.waiting import wait_until


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ProcessBox]:
    with process_box(tmp_path / "state", "none") as made:
        yield made


def write_ctl(box: ProcessBox, handle: Handle, data: bytes) -> None:
    ctl = os.open(box.path(handle) / "ctl", os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(ctl, data)
    finally:
        os.close(ctl)


REFUSED = [
    b"1 4 1 kill\n",  # a lower epoch than the plan's
    b"1 5 2 kill\n",  # another attempt
    b"2 5 1 kill\n",  # another version
    b"1 5 1 kill now\n",
    b"1 5 1 signal 0\n",
    b"1 5 1 signal 65\n",
    b"1 5 1 signal -9\n",
    b"1 5 1 stop 15 1\n",
    b"1 5 1 hold 0\n",
    b"1 99999999999999999999 1 kill\n",
    b"1 5 1\n",
    b"\n",
    b"kill\n",
    b"\xff\xfe \x00\n",
]


@pytest.mark.parametrize("line", REFUSED)
def test_a_command_that_is_not_right_is_counted_and_not_obeyed(
    box: ProcessBox, line: bytes
) -> None:
    handle = box.sh("exec sleep 1000")
    write_ctl(box, handle, line)
    write_ctl(box, handle, b"1 5 1 signal 10\n")
    record = box.wait_exit(handle)
    assert (record.why, record.signal, record.refused_commands) == (ExitWhy.EXITED, 10, 1)


def test_the_shim_itself_remembers_the_highest_epoch(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    write_ctl(box, handle, b"1 8 1 signal 18\n1 7 1 kill\n1 8 1 signal 12\n")
    record = box.wait_exit(handle)
    assert (record.signal, record.refused_commands) == (12, 1)


def test_a_command_in_two_pieces_is_one_command(box: ProcessBox) -> None:
    handle = box.sh("echo ready; exec sleep 1000")
    write_ctl(box, handle, b"1 5 1 ki")
    box.wait_log(handle, b"ready")
    write_ctl(box, handle, b"ll\n")
    assert box.wait_exit(handle).why is ExitWhy.KILLED


def test_an_endless_line_does_not_block_what_follows(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    for _ in range(3):
        write_ctl(box, handle, b"x" * 4000)
        wait_until(lambda: fifo_is_empty(box, handle), what="an empty channel")
    write_ctl(box, handle, b"\n1 5 1 kill\n")
    record = box.wait_exit(handle)
    assert record.why is ExitWhy.KILLED
    assert record.refused_commands >= 1


def fifo_is_empty(box: ProcessBox, handle: Handle) -> bool:
    ctl = os.open(box.path(handle) / "ctl", os.O_RDONLY | os.O_NONBLOCK)
    try:
        waiting = fcntl.ioctl(ctl, termios.FIONREAD, b"\0" * 4)
        return bool(struct.unpack("i", waiting)[0] == 0)
    finally:
        os.close(ctl)


def test_a_command_sent_before_the_shim_is_up_is_not_lost(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    box.runtime.kill(handle, epoch=5)
    assert box.wait_exit(handle).why is ExitWhy.KILLED


def fill_channel(box: ProcessBox, handle: Handle) -> None:
    for _ in range(10_000):
        box.runtime.signal(handle, signal.SIGCONT, epoch=5)


def test_a_shim_that_does_not_read_means_not_delivered(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    started = wait_until(lambda: box.runtime.started(handle), what="the start record")
    assert started is not None
    os.kill(started.shim_pid, signal.SIGSTOP)
    try:
        with pytest.raises(NotDelivered):
            fill_channel(box, handle)
    finally:
        os.kill(started.shim_pid, signal.SIGCONT)


def test_signals_to_the_shim_do_not_end_it(box: ProcessBox) -> None:
    handle = box.sh("sleep 0.5; exit 3")
    started = wait_until(lambda: box.runtime.started(handle), what="the start record")
    assert started is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1):
        os.kill(started.shim_pid, number)
    assert box.wait_exit(handle).why is ExitWhy.EXITED


# ---- the log


def numbered(lines: int) -> str:
    """A script that prints lines of ten bytes, each saying its own number."""
    return f"exec seq -f '%09.0f' 0 {lines - 1}"


def check_numbered(offset: int, data: bytes) -> None:
    """Every byte must be what stands at its logical offset."""
    first = offset // 10
    whole = b"".join(b"%09d\n" % number for number in range(first, first + len(data) // 10 + 2))
    assert data == whole[offset % 10 : offset % 10 + len(data)]


def test_five_megabytes_keep_their_head_and_their_tail(box: ProcessBox) -> None:
    handle = box.sh(numbered(500_000), log_head_bytes=1000, log_ring_bytes=65_536)
    record = box.wait_exit(handle)
    assert (record.log_bytes, record.dropped_log_bytes) == (5_000_000, 0)
    head = box.runtime.read_log(handle, 0, 1 << 20)
    assert (head.offset, len(head.data), head.end) == (0, 1000, 5_000_000)
    check_numbered(0, head.data)
    tail = box.runtime.read_log(handle, 1000, 1 << 20)
    assert (tail.offset, len(tail.data)) == (5_000_000 - 65_536, 65_536)
    check_numbered(tail.offset, tail.data)
    assert (box.path(handle) / "log.ring").stat().st_size <= 65_536 + 4096


def test_a_log_read_while_it_is_overwritten_never_shows_a_wrong_byte(box: ProcessBox) -> None:
    handle = box.sh(numbered(2_000_000), log_head_bytes=0, log_ring_bytes=16_384, log_bytes_per_s=0)
    offset = pieces = 0
    while box.runtime.poll(handle) is None:
        chunk = box.runtime.read_log(handle, offset, 10_000)
        assert chunk.offset >= offset
        check_numbered(chunk.offset, chunk.data)
        offset, pieces = chunk.next_offset, pieces + bool(chunk.data)
    assert pieces > 0
    assert box.runtime.read_log(handle, 0, 1 << 20).end == 20_000_000


def test_stdout_and_stderr_are_one_stream_in_the_order_written(box: ProcessBox) -> None:
    handle = box.sh("echo 1; echo 2 >&2; echo 3; echo 4 >&2")
    box.wait_exit(handle)
    assert box.log(handle) == b"1\n2\n3\n4\n"


def test_output_before_a_sudden_death_is_kept(box: ProcessBox) -> None:
    handle = box.sh("head -c 200000 /dev/zero; kill -9 $$")
    assert box.wait_exit(handle).signal == 9
    assert box.log(handle) == b"\0" * 200_000


def test_a_flood_is_slowed_down_to_the_plans_rate(box: ProcessBox) -> None:
    handle = box.sh("head -c 3000000 /dev/zero", log_bytes_per_s=5_000_000)
    record = box.wait_exit(handle)
    assert record.started_boottime_ns is not None
    assert record.log_bytes == 3_000_000
    assert record.ended_boottime_ns - record.started_boottime_ns > 300_000_000


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_loses_log_bytes_but_neither_the_job_nor_its_record(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    assert os.system(f"mount -t tmpfs -o size=256k tmpfs {small}") == 0
    try:
        with process_box(small / "state", "none") as box:
            record = box.wait_exit(box.sh("head -c 2000000 /dev/zero; exit 9"))
            assert (record.why, record.code) == (ExitWhy.EXITED, 9)
            assert record.dropped_log_bytes > 0
            assert record.log_bytes + record.dropped_log_bytes == 2_000_000
    finally:
        assert os.system(f"umount {small}") == 0


_STAYS = 'import time; print("ready", flush=True); time.sleep(1000)'


@pytest.mark.parametrize(
    ("script", "bears"),
    [
        # No shell stays: it blocks all signals for a moment at each fork.
        (f"exec python3 -c 'import signal; signal.signal(15, print); {_STAYS}'", True),
        ("trap '' TERM; echo ready; exec sleep 1000", True),
        ("echo ready; exec sleep 1000", False),
        (f"exec python3 -c 'import signal; signal.pthread_sigmask(0, [15]); {_STAYS}'", None),
    ],
    ids=["catches", "ignores", "has no handler", "waits for it by a mask"],
)
def test_it_is_seen_whether_the_program_bears_a_signal(
    box: ProcessBox, script: str, bears: bool | None
) -> None:
    handle = box.sh(script)
    wait_until(lambda: b"ready" in box.runtime.read_log(handle, 0, 100).data, what="a trap")
    assert box.runtime.catches(handle, signal.SIGTERM) is bears
    assert box.runtime.catches(handle, signal.SIGUSR2) is False
    box.runtime.kill(handle, epoch=5)
    box.wait_exit(handle)
    assert box.runtime.catches(handle, signal.SIGTERM) is None
