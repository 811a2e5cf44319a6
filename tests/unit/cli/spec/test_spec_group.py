"""Files of groups: members with keys of their own, and mistakes with file and line."""

import pytest

from dlq_cli.spec.group import read_group
from dlq_common.errors import InvalidRequest

GROUP = b"""\
name = "rl"
resources.cpus = 2

[members.learner]
command = "python3 learner.py"
resources.gpus_total = 4
ends = "all"

[members.actor]
command = "python3 actor.py"
count = 3
name = "actors"
"""


def test_members_have_the_shared_keys_and_their_own() -> None:
    learner, actor = read_group(GROUP, "rl.toml")
    assert (learner.name, learner.jobs, learner.ends) == ("learner", 1, "all")
    assert (actor.name, actor.jobs, actor.ends) == ("actor", 3, "each")
    assert (learner.layer["name"].value, actor.layer["name"].value) == ("rl", "actors")
    assert learner.layer["resources.gpus_total"].origin == "rl.toml:6"
    assert {one.layer["resources.cpus"].origin for one in (learner, actor)} == {"rl.toml:2"}


def test_yaml_will_do_too() -> None:
    text = b"command: 'true'\nmembers:\n  learner: {ends: all}\n  actor:\n    count: 2\n"
    learner, actor = read_group(text, "rl.yaml")
    assert (learner.ends, actor.jobs) == ("all", 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("command = 'true'\n", "rl.toml: it has no members"),
        ("members = 3\n", "rl.toml: it has no members"),
        ("[members.a]\ncount = 0\n", "rl.toml:1: count of member a: a number from 1, not 0"),
        ("[members.a]\ncount = 'x'\n", "a number from 1, not 'x'"),
        ("[members.a]\ncount = 257\n", "count of member a: a group has at most 256 jobs"),
        ("[members.a]\ncount = 99999999999\n", "a group has at most 256 jobs"),
        ("[members.a]\nends = 'al'\n", "ends of member a: one of all, each, alone, not 'al'"),
        ("[members.'A b']\ncommand = 'x'\n", "is not allowed"),
        ("[members]\na = 3\n", "member a is a table"),
        ("[members.a]\nnodez = 2\n", "rl.toml:2: unknown key 'nodez'"),
    ],
)
def test_a_mistake_names_its_place(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_group(text.encode(), "rl.toml")
    assert words in refused.value.what
