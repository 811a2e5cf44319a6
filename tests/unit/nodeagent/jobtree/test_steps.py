"""A job's own list of its steps: what it says, and that nothing in it can do harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_nodeagent.jobtree.steps import (
    MOST_STEPS,
    MOST_TOLD_BYTES,
    StepsRefused,
    parse_steps,
)
from dlq_nodeagent.model.steps import WrittenStep, told_step

HEAD = "dlq-steps\t1\t3\t1\n"
ENDED = "0\ttrain\t2\t8\tended\t137\t1700000000250\t1700000060750\t4096\t2500000\tn1,n2\n"
RUNNING = "7\t\t1\t1\trunning\t0\t1700000061000\t0\t0\t0\tn1\n"


def test_a_list_says_what_its_writer_meant() -> None:
    listed = parse_steps((HEAD + ENDED + RUNNING).encode())
    assert (listed.dropped_count, listed.dropped_failed_count) == (3, 1)
    ended, running = listed.steps
    assert ended == WrittenStep(
        number=0,
        name="train",
        node_count=2,
        task_count=8,
        running=False,
        exit_code=137,
        start_s=1_700_000_000.25,
        end_s=1_700_000_060.75,
        peak_memory_bytes=4096,
        cpu_s=2.5,
        node_ids=("n1", "n2"),
    )
    assert (running.number, running.name, running.running) == (7, "", True)


def test_a_script_that_has_ended_is_measured() -> None:
    assert parse_steps(HEAD.encode()).script_cpu_s is None
    listed = parse_steps(b"dlq-steps\t1\t0\t0\t4096\t1500000\n")
    assert (listed.script_peak_memory_bytes, listed.script_cpu_s) == (4096, 1.5)


def test_what_is_told_has_no_instants_and_nothing_from_the_future() -> None:
    ended, running = parse_steps((HEAD + ENDED + RUNNING).encode()).steps
    told = told_step(ended, 1_700_000_100.25)
    assert (told.age_s, told.run_s) == (100.0, 60.5)
    assert (told_step(running, 0.0).age_s, told_step(running, 0.0).run_s) == (0.0, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dlq-steps\t1\t0\t0",  # not whole
        "dlq-steps\t2\t0\t0\n",
        "dlq-steps\t1\t0\n",
        "dlq-steps\t1\t0\t0\t1\n",
        "dlq-steps\t1\t0\t0\t-1\t1\n",
        "dlq-steps\t1\t1\t2\n",  # more failed ones than all
        "dlq-steps\t1\t-1\t0\n",
        HEAD + ENDED + ENDED,  # one number twice
        HEAD + RUNNING + ENDED,  # falling
        HEAD + ENDED.rstrip("\n"),
        HEAD + ENDED.replace("137", "-9"),
        HEAD + ENDED.replace("137", "256"),
        HEAD + ENDED.replace("4096", "9" * 30),
        HEAD + ENDED.replace("4096", "-1"),
        HEAD + ENDED.replace("4096", "٤"),
        HEAD + ENDED.replace("2500000", "nan"),
        HEAD + ENDED.replace("ended", "lost"),
        HEAD + ENDED.replace("train", "tr\x1bain"),
        HEAD + ENDED.replace("train", "n" * 300),
        HEAD + ENDED.replace("n1,n2", "n1,,n2"),
        HEAD + ENDED.replace("n1,n2", "n" * 2000),
        HEAD + RUNNING.replace("\t0\t0\t0\t", "\t5\t0\t0\t"),  # it runs, and has an end
        HEAD + "\n",
        HEAD + "".join(RUNNING.replace("7", str(at), 1) for at in range(MOST_STEPS + 1)),
    ],
)
def test_what_is_no_list_is_refused_whole(text: str) -> None:
    with pytest.raises(StepsRefused):
        parse_steps(text.encode())


@given(st.binary(max_size=400))
def test_garbage_is_refused_and_raises_nothing_else(content: bytes) -> None:
    _parse_or_refuse(content)
    _parse_or_refuse(HEAD.encode() + content)


_FIELD = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["running", "ended", "", "0", "1e9", "0x1", "+1", "n1,n2", "nan"]),
    st.text(max_size=8),
)


@given(st.lists(st.lists(_FIELD, min_size=9, max_size=13).map("\t".join), max_size=4))
def test_lines_that_look_like_steps_are_read_or_refused(lines: list[str]) -> None:
    _parse_or_refuse((HEAD + "".join(f"{line}\n" for line in lines)).encode("utf-8", "replace"))


def _parse_or_refuse(content: bytes) -> None:
    try:
        listed = parse_steps(content)
    except StepsRefused:
        return
    assert len(listed.steps) <= MOST_STEPS
    for step in listed.steps:
        assert step.name.isprintable()
        assert 0 <= step.exit_code <= 255
        assert told_step(step, 1.7e9).age_s >= 0.0


def test_the_last_node_of_a_list_that_fills_its_room_is_left_out() -> None:
    names = ",".join(f"node-{at:04d}" for at in range(200))[:1023]
    (step,) = parse_steps((HEAD + ENDED.replace("n1,n2", names)).encode()).steps
    assert step.node_ids[-1] == "node-0101"


def test_the_oldest_ended_steps_make_room_in_a_report() -> None:
    nodes = ",".join(["n" * 99] * 10)
    lines = [
        f"{at}\ts\t10\t10\t{'running' if at == 0 else 'ended'}\t{int(at == 1)}\t5\t"
        f"{0 if at == 0 else 6}\t0\t0\t{nodes}\n"
        for at in range(MOST_STEPS)
    ]
    listed = parse_steps((HEAD + "".join(lines)).encode())
    kept = len(listed.steps)
    assert kept + listed.dropped_count == MOST_STEPS + 3
    assert 200 < kept * 1_000 <= MOST_TOLD_BYTES
    assert listed.steps[0].number == 0  # it runs
    assert listed.steps[-1].number == MOST_STEPS - 1
    assert listed.dropped_failed_count == 2
