"""Files of groups: a table for each member, and above them the keys that hold for all.

Each member is a job as in a job file, with two keys more: `count`, how many jobs it is, and `ends`,
what its end means for the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_cli.spec.toml_yaml import layer_of, read_tree
from dlq_cli.spec.values.given import Layer, wrong
from dlq_common.text.names import check_word
from dlq_common.text.suggest import did_you_mean

MEMBERS = "members"
ENDS = ("all", "each", "alone")
MOST_JOBS = 256  # of a group; the master refuses more


class MemberSpec(NamedTuple):
    """A member before the flags."""

    name: str
    jobs: int
    ends: str
    layer: Layer


def read_group(content: bytes, name: str) -> list[MemberSpec]:
    """The members of a file, in its order. InvalidRequest naming file and line."""
    tree, lines = read_tree(content, name)
    return members_of(tree, lines, name)


def members_of(tree: object, lines: Mapping[str, int], name: str) -> list[MemberSpec]:
    """The same of values that are read already."""
    members = tree.get(MEMBERS) if isinstance(tree, Mapping) else None
    if not isinstance(tree, Mapping) or not isinstance(members, Mapping) or not members:
        raise wrong(name, "it has no members", hint="a table for each: [members.learner]")
    shared = {key: value for key, value in tree.items() if key != MEMBERS}
    try:
        common = layer_of(shared, lines, name)
        return [_member(str(it), members[it], common, lines, name) for it in members]
    except RecursionError:
        raise wrong(name, "it is nested too deeply") from None


# --- helpers, in order of use ---------------------------------------------------------------------


def _member(
    word: str, values: object, common: Layer, lines: Mapping[str, int], name: str
) -> MemberSpec:
    above = f"{MEMBERS}.{word}"
    line = lines.get(above)
    origin = f"{name} [{above}]" if line is None else f"{name}:{line}"
    try:
        check_word(word, "member")
    except ValueError as error:
        raise wrong(origin, str(error)) from None
    if not isinstance(values, Mapping):
        raise wrong(origin, f"member {word} is a table: write its keys below [{above}]")
    own = dict(values)
    count, ends = own.pop("count", 1), own.pop("ends", "each")
    if not str(count).isascii() or not str(count).isdecimal() or not str(count).strip("0"):
        raise wrong(origin, f"count of member {word}: a number from 1, not {count!r}")
    if len(str(count)) > len(str(MOST_JOBS)) or int(str(count)) > MOST_JOBS:
        raise wrong(origin, f"count of member {word}: a group has at most {MOST_JOBS} jobs")
    if ends not in ENDS:
        words = ", ".join(ENDS)
        meant = did_you_mean(str(ends), ENDS)
        raise wrong(origin, f"ends of member {word}: one of {words}, not {ends!r}{meant}")
    layer = {**common, **layer_of(own, lines, name, above=f"{above}.")}
    return MemberSpec(word, int(str(count)), str(ends), layer)
