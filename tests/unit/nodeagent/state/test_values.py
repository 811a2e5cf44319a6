"""Values as JSON and back: as the files of earlier agents have them."""

import json

import pytest

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import ContainerRequest, Fence, Launch, MountRequest
from dlq_nodeagent.model.rank import Stopping
from dlq_nodeagent.state.journal import NodeRecord
from dlq_nodeagent.state.values import changed_fields, from_plain, to_json

LAUNCH = Launch(
    key=RankKey("17", 2, 0),
    fence=Fence(5, 2),
    command=("python", "train.py"),
    environment={"A": "ü"},
    node_ports=((1, 2), (3,)),
    container=ContainerRequest(
        image="i", mounts=(MountRequest(source="/a", target="/b", read_only=True),)
    ),
)


def test_names_are_lists_and_values_below_are_whole() -> None:
    plain = json.loads(to_json(LAUNCH))
    assert plain["key"] == ["17", 2, 0]
    assert plain["node_ports"] == [[1, 2], [3]]
    assert plain["container"]["mounts"] == [{"source": "/a", "target": "/b", "read_only": True}]


def test_what_was_written_is_read_as_it_was() -> None:
    assert from_plain(Launch, json.loads(to_json(LAUNCH))) == LAUNCH


def test_only_changed_fields_are_named_on_request() -> None:
    assert changed_fields(NodeRecord(highest_epoch=3)) == {"highest_epoch": 3}
    assert "command" not in changed_fields(LAUNCH, but=("command",))


def test_missing_fields_have_defaults_and_unknown_ones_are_passed_over() -> None:
    read = from_plain(Stopping, {"cause": "drain", "grace_s": 2, "due_s": 1.0, "later": "word"})
    assert read == Stopping(cause="drain", grace_s=2.0, due_s=1.0)


@pytest.mark.parametrize("content", [{"cause": "drain"}, [], None, {"cause": "d", "grace_s": "x"}])
def test_what_is_no_such_value_is_refused(content: object) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        from_plain(Stopping, content)
