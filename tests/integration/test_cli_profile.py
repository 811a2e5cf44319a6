"""`dlq admin profile`: the files that it writes, its refusals, and its line on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import grpc
import pytest

from dlq_cli.output.progress import ProgressBar
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import a_profile

pytestmark = pytest.mark.integration


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    running.own_profile = a_profile()
    yield running
    running.stop()


FOLDED = [
    "loop;Loop.run (dlq_master/control/loop/loop.py:160);Handle._run (asyncio/events.py:78) 37",
    "loop;Loop.run (dlq_master/control/loop/loop.py:160)"
    ";Loop.turn (dlq_master/control/loop/loop.py:182) 60",
    "loop;Loop.run (dlq_master/control/loop/loop.py:160)"
    ";Loop.turn (dlq_master/control/loop/loop.py:182)"
    ";Loop.run (dlq_master/control/loop/loop.py:160) 1",
    "store-writer;write (dlq_master/store/sqlite/open.py:209) 5",
]


def test_folded_stacks_are_written(dlq: Dlq, tmp_path: Path) -> None:
    target = tmp_path / "master.folded"
    said = dlq("admin", "profile", "-o", str(target))
    assert (said.code, said.err) == (0, f"dlq: 103 samples are in {target}\n")
    assert target.read_text().splitlines() == FOLDED


def test_the_format_of_speedscope_is_written(dlq: Dlq, tmp_path: Path) -> None:
    target = tmp_path / "master.json"
    assert dlq("admin", "profile", "-o", str(target)).code == 0
    content = json.loads(target.read_text())
    assert content["shared"]["frames"][1] == {
        "name": "Loop.turn",
        "file": "dlq_master/control/loop/loop.py",
        "line": 182,
    }
    assert [one["name"] for one in content["profiles"]] == ["loop", "store-writer"]
    loop = content["profiles"][0]
    assert (loop["samples"], loop["weights"]) == ([[0, 1], [0, 2], [0, 1, 0]], [60, 37, 1])
    assert (loop["type"], loop["endValue"]) == ("sampled", 98)


def test_a_file_that_is_there_is_refused_before_the_master_is_asked(
    dlq: Dlq, master: FakeMaster, tmp_path: Path
) -> None:
    target = tmp_path / "master.folded"
    target.write_text("mine")
    said = dlq("admin", "profile", "-o", str(target))
    assert (said.code, target.read_text()) == (2, "mine")
    assert "--force writes over it" in said.err
    assert "ProfileMaster" not in {name for name, *_ in master.asked}
    assert dlq("admin", "profile", "-f", "-o", str(target)).code == 0
    assert target.read_text() != "mine"


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "TRY_AGAIN", 75),
        (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED", 4),
        (grpc.StatusCode.UNAVAILABLE, "", 69),
    ],
)
def test_a_refusal_and_a_lost_line_have_their_exit_codes(
    dlq: Dlq, master: FakeMaster, status: grpc.StatusCode, reason: str, code: int
) -> None:
    master.refuse("ProfileMaster", status, reason, what="olga takes a profile")
    said = dlq("admin", "profile")
    assert said.code == code, said.err


@pytest.mark.parametrize("seconds", ["0", "301", "x"])
def test_a_length_out_of_bounds_is_a_mistake_of_use(
    dlq: Dlq, master: FakeMaster, seconds: str
) -> None:
    assert dlq("admin", "profile", "--seconds", seconds).code == 2
    assert not master.asked


def test_it_may_be_sorted_by_the_whole_time_and_cut(dlq: Dlq) -> None:
    text = dlq("admin", "profile", "--sort", "total", "--top", "1").out
    assert "Loop.run" in text
    assert "Loop.turn" not in text


def test_the_agent_of_a_node_is_profiled_without_turns(
    dlq: Dlq, master: FakeMaster, tmp_path: Path
) -> None:
    target = tmp_path / "agent.json"
    said = dlq("admin", "profile", "--node", "n7", "-t", "5", "-o", str(target))
    assert said.code == 0, said.err
    assert "Loop.turn" in said.out
    assert "TURNS" not in said.out
    assert json.loads(target.read_text())["name"] == "n7"
    (request,) = [request for name, _, request in master.asked if name == "ProfileNode"]
    assert (request.node_id, request.sample_duration.seconds) == ("n7", 5)
    assert "ProfileMaster" not in {name for name, *_ in master.asked}


class Screen(StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_it_is_and_is_clean_afterwards() -> None:
    screen = Screen()
    with ProgressBar("sampling", 30.0, screen) as bar:
        bar.at(15.0)
        bar.at(45.0)
    first, half, whole, end = screen.getvalue().split("\r\x1b[K")[1:]
    assert first == f"sampling [{'.' * 24}] 30s left"
    assert half == f"sampling [{'#' * 12}{'.' * 12}] 15s left"
    assert whole == f"sampling [{'#' * 24}] 0s left"
    assert end == ""


def test_a_pipe_sees_nothing_of_it() -> None:
    pipe = StringIO()
    with ProgressBar("sampling", 30.0, pipe) as bar:
        bar.at(15.0)
    assert pipe.getvalue() == ""
