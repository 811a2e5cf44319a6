"""What is meant for nodes is found by rank and by node, and gone from everywhere once it is
taken.
"""

from dlq_master.control.attempts.state import Outbox
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.store.batch import Intention

FIRST, SECOND = AttemptKey(JobId(1), 1), AttemptKey(JobId(2), 1)


def meant(sequence: int, key: AttemptKey, rank: int, node: str, kind: str = "launch") -> Intention:
    return Intention(
        sequence=sequence,
        node_id=NodeId(node),
        kind=kind,
        key=key,
        epoch=1,
        node_rank=rank,
        cause="",
        grace_s=0.0,
    )


ROWS = (
    meant(3, FIRST, 0, "n1"),
    meant(4, FIRST, 1, "n2"),
    meant(5, SECOND, 0, "n2"),
    meant(6, FIRST, 1, "n2", "stop"),
)


def test_rows_are_found_by_rank_and_by_node_in_the_order_they_were_meant() -> None:
    outbox = Outbox(ROWS)
    assert outbox == {row.sequence: row for row in ROWS}
    assert outbox.of_rank(FIRST, 1) == (ROWS[1], ROWS[3])
    assert outbox.of_rank(SECOND, 1) == ()
    assert outbox.of_node(NodeId("n2")) == ROWS[1:]


def test_a_row_that_was_taken_is_gone_from_everywhere_and_once_only() -> None:
    outbox = Outbox(ROWS)
    assert outbox.drop(4)
    assert not outbox.drop(4)
    assert outbox.of_rank(FIRST, 1) == (ROWS[3],)
    assert outbox.of_node(NodeId("n2")) == (ROWS[2], ROWS[3])
    for row in ROWS:
        outbox.drop(row.sequence)
    assert (outbox == {}, outbox.of_node(NodeId("n1")), outbox.of_rank(FIRST, 0)) == (True, (), ())
