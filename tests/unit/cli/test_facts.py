"""Messages as the values of `--json`."""

import pytest

from dlq.v1 import job_pb2, node_pb2
from dlq_cli.facts.common import described


def test_fields_come_in_the_order_of_their_names() -> None:
    rank = job_pb2.Rank(node_rank=1, node_id="gpu01", last_lines=["a", "b"])
    found = described(job_pb2.Rank, "node_id node_rank last_lines")(rank)
    assert list(found.items()) == [
        ("node_id", "gpu01"),
        ("node_rank", 1),
        ("last_lines", ["a", "b"]),
    ]


def test_a_field_that_is_not_set_is_null_and_an_empty_one_only_where_it_is_asked_for() -> None:
    assert described(job_pb2.Rank, "exit_code signal? node_id")(job_pb2.Rank()) == {
        "exit_code": None,
        "signal": None,
        "node_id": "",
    }
    assert described(job_pb2.Rank, "exit_code")(job_pb2.Rank(exit_code=0)) == {"exit_code": 0}


def test_times_durations_and_maps_are_what_people_read() -> None:
    attempt = job_pb2.Attempt()
    attempt.start_time.FromSeconds(0)
    attempt.grace_duration.FromMilliseconds(1500)
    assert described(job_pb2.Attempt, "start_time grace_s grace_seconds end_time")(attempt) == {
        "start_time": "1970-01-01T00:00:00.000Z",
        "grace_s": 1.5,
        "grace_seconds": 1.5,
        "end_time": None,
    }
    assert list(
        described(node_pb2.Node, "labels")(node_pb2.Node(labels={"b": "2", "a": "1"}))["labels"]
    ) == [
        "a",
        "b",
    ]


def test_a_name_that_no_field_has_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError, match="exit_cod"):
        described(job_pb2.Rank, "exit_cod")(job_pb2.Rank())
