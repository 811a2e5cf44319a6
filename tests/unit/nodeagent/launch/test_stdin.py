"""Which rank gets its client's stdin, and by which program."""

from pathlib import Path

import pytest

from dlq_nodeagent.launch.stdin import stdin_environment, stdin_mount, with_stdin
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, Launch


def launch(node_rank: int, stdin: str) -> Launch:
    key = RankKey("17", 1, node_rank)
    return Launch(key=key, fence=Fence(1, 1), command=("x",), stdin=stdin)


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_rank_0_is_started_by_the_program_that_brings_it(kind: str) -> None:
    made = launch(0, kind)
    program, word, socket, dashes, *rest = with_stdin(
        made, ("x", "--", "y"), job_dir="/job", state_dir=None
    )
    assert (word, socket, dashes, rest) == (kind, "/job/stdin", "--", ["x", "--", "y"])
    assert Path(program).name == "dlq-stdin"
    assert stdin_environment(made, None) == {"DLQ_STDIN": program}
    assert [mount.source for mount in stdin_mount(made, None)] == [program]


@pytest.mark.parametrize("made", [launch(0, ""), launch(1, "pipe")])
def test_other_ranks_and_other_jobs_have_dev_null(made: Launch) -> None:
    assert with_stdin(made, ("x",), job_dir="/job", state_dir=None) == ("x",)
    assert stdin_environment(made, None) == {}
    assert stdin_mount(made, None) == ()
