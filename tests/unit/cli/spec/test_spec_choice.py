"""How people choose nodes: what is read, what is refused, and that a resubmission says it again."""

import pytest

from dlq_common.job_fields.reading.choice import read_constraint, read_nodes


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("rack=r1", ("rack=r1",)),
        ("rack=r1,disk=fast", ("disk=fast", "rack=r1")),
        ("rack=r1&disk=fast", ("disk=fast", "rack=r1")),
        (["rack=r1", "disk=fast"], ("disk=fast", "rack=r1")),
        ({"rack": "r1"}, ("rack=r1",)),
    ],
)
def test_labels_are_read_in_every_form(raw: object, read: tuple[str, ...]) -> None:
    assert read_constraint(raw) == read


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("fast", "is not K=V"),
        ("a=1|b=2", "one label or another"),
        ("rack=r1,rack=r2", "asked for twice"),
        ("", "nothing is asked for"),
        ("Rack=r1", "label 'Rack'"),
        ("rack=", "label rack"),
        ("rack=a b", "label rack"),
        (7, "write K=V"),
    ],
)
def test_what_is_no_choice_of_labels_is_refused_with_words(raw: object, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("'", ".")):
        read_constraint(raw)


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("gpu01", ("gpu01",)),
        ("gpu[01-03],gpu02", ("gpu01", "gpu02", "gpu03")),
        (["gpu2", "gpu[1-2]"], ("gpu1", "gpu2")),
    ],
)
def test_nodes_are_read_in_every_form(raw: object, read: tuple[str, ...]) -> None:
    assert read_nodes(raw) == read


@pytest.mark.parametrize("raw", ["", "GPU 1", [], 7, "gpu[1-"])
def test_what_is_no_list_of_nodes_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match=r"node|host|gpu"):
        read_nodes(raw)
