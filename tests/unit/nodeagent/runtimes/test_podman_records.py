"""Who may use an image that lies in a node's store, and whether that outlives the agent."""

from pathlib import Path

import pytest

from dlq_common.errors import ConfigError
from dlq_common.text.container_names import repository_of
from dlq_nodeagent.runtimes.podman.records import ImageRecords

PRIVATE = "reg.example/team/private"


@pytest.fixture
def records(tmp_path: Path) -> ImageRecords:
    return ImageRecords(path=tmp_path / "images.json")


def test_an_image_of_the_operators_is_for_everybody(records: ImageRecords) -> None:
    assert records.allows("loaded", "localhost/a", "bob")
    assert records.allows("loaded", "reg.example/a", "bob")


def test_an_image_pulled_with_a_credential_is_for_those_who_have_one(records: ImageRecords) -> None:
    records.begin(PRIVATE)
    records.pulled("x", user="alice", with_secret=True, now_s=5.0)
    assert records.allows("x", PRIVATE, "alice")
    assert not records.allows("x", PRIVATE, "bob")
    records.pulled("x", user="carol", with_secret=True, now_s=6.0)
    assert records.allows("x", PRIVATE, "carol")
    assert not records.allows("x", PRIVATE, "bob")


def test_an_image_that_anybody_can_pull_is_for_everybody(records: ImageRecords) -> None:
    records.pulled("x", user="alice", with_secret=True, now_s=5.0)
    records.pulled("x", user="bob", with_secret=False, now_s=6.0)
    assert records.allows("x", PRIVATE, "dave")
    records.pulled("x", user="alice", with_secret=True, now_s=7.0)
    assert records.allows("x", PRIVATE, "dave")


def test_it_outlives_the_agent(records: ImageRecords) -> None:
    records.begin(PRIVATE)
    records.pulled("x", user="alice", with_secret=True, now_s=5.0)
    again = ImageRecords(path=records.path)
    assert again.allows("x", PRIVATE, "alice")
    assert not again.allows("x", PRIVATE, "bob")
    assert again.least_recently_used() == [("x", 5.0)]


def test_what_a_pull_brought_that_nobody_lived_to_record_is_private(records: ImageRecords) -> None:
    records.begin(PRIVATE)
    again = ImageRecords(path=records.path)
    assert not again.allows("unknown", PRIVATE, "alice")
    assert again.allows("unknown", "reg.example/other", "alice")


def test_use_is_written_now_and_then_and_a_removed_image_is_forgotten(
    records: ImageRecords,
) -> None:
    records.pulled("x", user="alice", with_secret=False, now_s=0.0)
    records.pulled("y", user="alice", with_secret=False, now_s=1.0)
    records.used("x", 60.0)
    assert records.least_recently_used() == [("y", 1.0), ("x", 60.0)]
    assert ImageRecords(path=records.path).least_recently_used()[0] == ("x", 0.0)
    records.used("x", 4000.0)
    records.removed("y")
    assert ImageRecords(path=records.path).least_recently_used() == [("x", 4000.0)]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"images": {}}', '{"images": 3}'])
def test_a_record_that_cannot_be_read_stops_the_agent_and_opens_nothing(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "images.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="the record of the users of images"):
        ImageRecords(path=path)


@pytest.mark.parametrize(
    "name", ["r.example:5000/a/b", "r.example:5000/a/b:1", f"r.example:5000/a/b@sha256:{'0' * 64}"]
)
def test_a_repository_is_a_name_without_its_version(name: str) -> None:
    assert repository_of(name) == "r.example:5000/a/b"
