"""What groups of an issuer give: the highest role, and teams; nothing that is not configured."""

from __future__ import annotations

import pytest

from dlq_common.errors import InvalidRequest
from dlq_common.identity.acting import LONGEST_GROUP, MOST_GROUPS, ActsFor, acts_for
from dlq_master.rpc.calls.roles import GroupGrants

GRANTS = GroupGrants(
    {"ops": "operator", "users": "user", "root": "admin"}, {"vis": "vision", "nlp": "nlp"}
)


@pytest.mark.parametrize(
    ("own", "groups", "role"),
    [
        ("user", (), "user"),
        ("user", ("ops",), "operator"),
        ("user", ("users", "ops", "strangers"), "operator"),
        ("user", ("root", "ops"), "admin"),
        ("admin", ("ops",), "admin"),
        ("operator", ("users",), "operator"),
        ("web", ("root",), "web"),
        ("inference", ("root",), "inference"),
        ("notifier", ("root",), "notifier"),
    ],
)
def test_a_group_raises_a_role_and_lowers_none(
    own: str, groups: tuple[str, ...], role: str
) -> None:
    assert GRANTS.role(own, groups) == role


def test_teams_are_told_with_their_groups() -> None:
    assert GRANTS.teams_of(("vis", "ops", "nlp")) == (("nlp", "nlp"), ("vision", "vis"))
    assert GRANTS.known(("x", "vis", "ops")) == ("vis", "ops")
    assert GroupGrants().known(("vis",)) == ()


def test_groups_cross_the_wire_as_they_are() -> None:
    user = ActsFor("alice", "user", 12.5, ("/lab/\u00e4rzte", "a,b"))
    assert all(value.isascii() for _, value in user.metadata())
    assert acts_for(user.metadata()) == user


@pytest.mark.parametrize(
    "text",
    [
        "x", "{}", "[1]", '[""]', '["a\\n"]', '"ops"', "[" * 2_000,
        str(["g"] * (MOST_GROUPS + 1)).replace("'", '"'), f'["{"g" * (LONGEST_GROUP + 1)}"]',
    ],
)  # fmt: skip
def test_groups_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        acts_for([("dlq-acts-for", "alice"), ("dlq-acts-groups", text)])


def test_groups_without_a_user_are_nobodys() -> None:
    with pytest.raises(InvalidRequest):
        acts_for([("dlq-acts-groups", "[]")])
