"""The error tree: stable words, facts that survive the wire."""

import re

import pytest

from dlq_common import errors


def kinds() -> list[type[errors.DlqError]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.DlqError)
    ]


def test_every_kind_has_its_own_reason_word() -> None:
    words = [kind.reason for kind in kinds()]
    assert len(words) == len(set(words))
    assert all(re.fullmatch(r"[A-Z][A-Z_]+", word) for word in words)


def test_the_picture_in_the_module_names_every_kind() -> None:
    assert {kind.__name__ for kind in kinds()} == set(
        re.findall(r"(?:──|^ {4})\s?([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    )


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.reason)
def test_an_error_rebuilt_from_the_wire_is_the_same(kind: type[errors.DlqError]) -> None:
    sent = kind("job 17 is over", hint="submit it again", id=17)
    back = errors.error_from(sent.reason, sent.what, sent.metadata, sent.hint)
    assert type(back) is kind
    assert (back.what, back.hint, back.metadata) == (sent.what, sent.hint, sent.metadata)
    assert str(back) == "job 17 is over\nsubmit it again"


def test_the_field_and_the_reasons_survive_the_wire() -> None:
    bad = errors.InvalidRequest("gpus must be positive", field="gpus")
    rebuilt = errors.error_from(bad.reason, bad.what, bad.metadata)
    assert isinstance(rebuilt, errors.InvalidRequest)
    assert rebuilt.field == "gpus"

    never = errors.Unsatisfiable("never", reasons=("9 GPUs per node, nodes have 8", "no h200"))
    again = errors.error_from(never.reason, never.what, never.metadata)
    assert isinstance(again, errors.Unsatisfiable)
    assert again.reasons == never.reasons


def test_an_unknown_reason_and_strange_facts_become_a_plain_error() -> None:
    error = errors.error_from("FROM_THE_FUTURE", "new", {"what": "x", "hint": "y", "self": "z"})
    assert type(error) is errors.DlqError
    assert error.metadata == {"what": "x", "hint": "y", "self": "z"}


def test_a_caller_that_catches_unavailable_catches_not_leader() -> None:
    with pytest.raises(errors.Unavailable):
        raise errors.NotLeader("another master serves", leader="m2")
