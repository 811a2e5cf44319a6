"""Partial sends and EAGAIN become one request each, whatever happened in between."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlq_profiler.records.layout import SOCKET_SENDS, Op, RecordFlag, Side
from dlq_profiler.records.requests import requests_of
from support.traffic import EAGAIN, PREAMBLE, Tape


def a_tape(trouble: float = 0.0, seed: int = 1) -> tuple[Tape, int]:
    tape = Tape(Random(seed), trouble)
    return tape, tape.connection("10.0.0.2", 5000, Side.CONNECTED)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3_000_000)), min_size=1, max_size=12),
    st.integers(0, 1000),
)
def test_what_was_asked_for_comes_back_whatever_the_kernel_took(
    sends: list[tuple[int, int]], seed: int
) -> None:
    tape = Tape(Random(seed), trouble=0.6)
    conns = [tape.connection("10.0.0.2", 5000 + number, Side.CONNECTED) for number in range(3)]
    for place, (which, size) in enumerate(sends):
        tape.send(conns[which], size, 1 << 40 | place << 24, slot=4 << 56 | place << 24)
    found = requests_of(tape.records(), SOCKET_SENDS)
    assert [(int(one["conn"]), int(one["size"])) for one in found] == [
        (conns[which], size + PREAMBLE) for which, size in sends
    ]
    assert found["address"].tolist() == [1 << 40 | place << 24 for place in range(len(sends))]
    assert found["slot"].tolist() == [4 << 56 | place << 24 for place in range(len(sends))]
    assert np.array_equal(found["done"], found["size"])
    assert np.all(np.diff(found["start_ns"]) > 0)
    assert np.all(found["end_ns"] > found["start_ns"])


def test_calls_of_other_connections_in_between_do_not_end_a_request() -> None:
    tape, one = a_tape()
    two = tape.connection("10.0.0.3", 5000, Side.CONNECTED)
    tape.call(Op.WRITEV, one, 100, done=40, address=10)
    tape.call(Op.WRITEV, two, 60, done=60, address=500)
    tape.call(Op.WRITEV, one, 60, address=50)
    found = requests_of(tape.records(), SOCKET_SENDS)
    assert [(int(r["conn"]), int(r["size"]), int(r["done"])) for r in found] == [
        (one, 100, 100),
        (two, 60, 60),
    ]


def test_a_failed_send_that_is_not_gone_on_with_stays_alone() -> None:
    tape, conn = a_tape()
    tape.call(Op.SEND, conn, 100, done=-EAGAIN)
    tape.call(Op.SEND, conn, 30)
    found = requests_of(tape.records(), SOCKET_SENDS)
    assert [(int(one["size"]), int(one["done"])) for one in found] == [(100, 0), (30, 30)]


def test_peeks_other_ops_and_unlisted_connections_are_left_out() -> None:
    tape, conn = a_tape()
    tape.call(Op.SEND, conn, 1, flags=RecordFlag.PEEK)
    tape.call(Op.RECV, conn, 2)
    tape.call(Op.SEND, 0, 3)
    tape.call(Op.SEND, conn, 4)
    assert requests_of(tape.records(), SOCKET_SENDS)["size"].tolist() == [4]
    assert len(requests_of(tape.records()[:0], SOCKET_SENDS)) == 0
