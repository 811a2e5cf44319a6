"""Stacks of many ranks name the one that stands apart."""

from __future__ import annotations

from dlq_cli.text.stacks import apart, standing

ALL_REDUCE = "all_reduce (torch/distributed/distributed_c10d.py:2806)"
LOADS = "read (shards.py:31)"


def dump(frame: str, process: str = "") -> str:
    """As py-spy prints it, after the line that `dlq stacks` adds for a process of a launcher."""
    head = f"RANK {process}:\n" if process else ""
    return head + (
        "Process 4711: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        'Thread 4712 (idle): "Thread-1"\n    wait (threading.py:327)\n'
        f'Thread 4711 (active): "MainThread"\n    {frame}\n    step (train.py:40)\n'
    )


def test_the_innermost_frame_of_the_main_thread_is_the_place_of_a_rank() -> None:
    assert standing(3, dump(LOADS)) == {"rank 3": LOADS}
    two = dump(LOADS, "6") + dump(ALL_REDUCE, "7")
    assert standing(3, two) == {"process 6": LOADS, "process 7": ALL_REDUCE}
    assert standing(3, "py-spy failed\n") == {}


def test_the_rank_that_stands_elsewhere_is_named() -> None:
    places = {f"rank {rank}": ALL_REDUCE for rank in range(8)} | {"rank 3": LOADS}
    assert apart(places) == f"rank 3 stands in {LOADS}; the other 7 stand in {ALL_REDUCE}"


def test_without_a_majority_none_is_named() -> None:
    same = {f"rank {rank}": ALL_REDUCE for rank in range(4)}
    assert apart(same) == f"all 4 stand in {ALL_REDUCE}: none stands apart"
    assert "none stands apart" in apart(same | {"rank 0": LOADS, "rank 1": LOADS})
    assert apart({"rank 0": LOADS, "rank 1": ALL_REDUCE}) == ""


def test_of_many_that_stand_apart_some_are_named() -> None:
    places = {f"rank {rank}": ALL_REDUCE for rank in range(40)}
    places |= {f"rank {rank}": LOADS for rank in range(10)}
    assert "; and 2 more; the other 30 stand in" in apart(places)
