"""The programs that measure a node: one line of JSON, one verdict."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dlq_nodeagent.checks import host, pair
from dlq_nodeagent.checks.__main__ import main
from dlq_nodeagent.checks.result import (
    FAILED,
    PASSED,
    UNKNOWN,
    CheckResult,
    Figure,
    NotMeasured,
    judged,
)

QUICK = ("--seconds", "0", "--mib", "1")


def run(
    capsys: pytest.CaptureFixture[str], *words: str, script: Path | None = None
) -> tuple[int, dict[str, Any]]:
    """The exit code and the result of one check."""
    environment = {} if script is None else {"DLQ_CHECK_FAULTS": str(script)}
    code = main([*words, *QUICK], environment)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    told: dict[str, Any] = json.loads(lines[0])
    return code, told


@pytest.mark.parametrize(
    ("kind", "unit", "on"),
    [
        ("memory", "GB/s", "numpy"),
        ("matrix", "GFLOP/s", "numpy"),
        ("disk", "MB/s", "a written file"),
    ],
)
def test_a_sound_node_passes_and_the_result_names_figure_unit_and_means(
    kind: str, unit: str, on: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = run(capsys, kind, "--limit", "0.000001", "--directory", str(tmp_path))
    assert (code, told["passed"], told["unit"], told["on"]) == (PASSED, True, unit, on)
    assert told["figure"] > told["limit"]


@pytest.mark.parametrize("kind", ["memory", "matrix", "disk"])
def test_a_planted_fault_fails_its_own_check(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "faults"
    script.write_text(f"0|xid_79|lost\n*|slow_{kind}|0\n")
    words = (kind, "--limit", "0.000001", "--directory", str(tmp_path))
    code, told = run(capsys, *words, script=script)
    assert (code, told["passed"], told["figure"]) == (FAILED, False, 0.0)
    script.write_text(f"*|slow_other_{kind}|0\n")
    assert run(capsys, *words, script=script)[0] == PASSED


def test_a_check_that_cannot_be_made_says_why_and_is_no_word_on_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = run(capsys, "disk", "--directory", str(tmp_path / "none"))
    assert (code, told["passed"]) == (UNKNOWN, None)
    assert "No such file" in told["why"]
    for kind in ("clock", "pull", "all_reduce", "checkpoints"):
        assert run(capsys, kind)[0] == UNKNOWN


def test_a_busy_node_cannot_fail_and_may_pass() -> None:
    slow = Figure(value=1.0, unit="GB/s", on="numpy")
    assert judged("memory", slow, 2.0).passed is False
    busy = judged("memory", slow, 2.0, load=3.0)
    assert (busy.passed, busy.why) == (None, "the node is busy: a load of 3.0 for each core")
    assert judged("memory", slow, 0.5, load=3.0).passed is True


def test_of_some_figures_the_limit_is_the_most() -> None:
    late = Figure(value=120.0, unit="ms", on="SNTP", least=False)
    assert judged("clock", late, 100.0).passed is False
    assert judged("clock", late, 200.0).passed is True
    assert judged("clock", late, 0.0).passed is True


def test_a_result_fits_into_what_agents_tell_of_a_line() -> None:
    figure = Figure(value=123456.789, unit="GFLOP/s", on="torch, 16 GPUs")
    told = CheckResult(check="checkpoints", limit=123456.0, figure=figure, why="x" * 500)
    assert len(told.line()) <= 200
    assert json.loads(told.line())["figure"] == 123500.0


@contextmanager
def time_server(ahead_s: float) -> Iterator[str]:
    """A server whose clock is so far ahead of the time at which it is asked."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind(("127.0.0.1", 0))

        def serve() -> None:
            _, caller = door.recvfrom(512)
            stamp = int((time.time() + ahead_s + 2_208_988_800) * 2**32)
            door.sendto(32 * b"\0" + struct.pack("!QQ", stamp, stamp), caller)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{door.getsockname()[1]}"
        thread.join()


def test_the_offset_of_a_clock_is_that_from_its_server() -> None:
    with time_server(ahead_s=3600.0) as server:
        figure = host.clock(server)
    assert not figure.passes(1_800_000.0)
    assert figure.passes(7_200_000.0)


def test_two_nodes_add_up_and_both_have_a_figure() -> None:
    ours, theirs = socket.socketpair()
    found: list[Figure] = []
    with ours, theirs:
        other = threading.Thread(target=lambda: found.append(pair.over_socket(theirs, 1)))
        other.start()
        found.append(pair.over_socket(ours, 0))
        other.join()
    assert [one.value > 0.0 for one in found] == [True, True]


def test_a_pair_of_which_one_is_gone_is_not_measured() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(NotMeasured):
        pair.over_socket(ours, 0)
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    with pytest.raises(OSError, match=r"."):
        pair.met(("127.0.0.1", port), 1, b"17 1.1\n", 0.0)


def test_a_stranger_at_the_port_of_a_pair_is_turned_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    lines: list[socket.socket] = []
    waits = threading.Thread(
        target=lambda: lines.append(pair.met(("127.0.0.1", port), 0, b"17 1.1\n", 20.0))
    )
    waits.start()
    stranger = pair.met(("127.0.0.1", port), 1, b"99 9.9\n", 20.0)
    assert stranger.recv(1) == b""
    friend = pair.met(("127.0.0.1", port), 1, b"17 1.1\n", 20.0)
    waits.join()
    friend.sendall(b"!")
    assert lines[0].recv(1) == b"!"
    for line in (stranger, friend, *lines):
        line.close()
