"""Which checks are due: a pure decision about idle nodes."""

from __future__ import annotations

from typing import Any

from dlq_master.checks.due import (
    PAIR,
    SUSPECT,
    WIDE,
    CheckRule,
    DueCheck,
    IdleNode,
    Periods,
    due,
    overdue,
)
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import LastCheck

PERIODS = Periods(every_s=1000.0, retry_s=100.0)
ALWAYS = frozenset({"join", "undrain", "idle"})
H100 = ("h100-80gb", 8)


def a_node(name: str, **more: Any) -> IdleNode:
    """An open node that was never checked."""
    empty: IdleNode = IdleNode(NodeId(name), H100, {}, {})
    return empty._replace(**more)


def asked(*nodes: IdleNode, now_s: float = 5000.0, kinds: tuple[str, ...] = ("disk",)) -> list[str]:
    """The checks that are due, in words."""
    rules = [CheckRule(kind, ALWAYS) for kind in kinds]
    return [_words(one) for one in due(rules, nodes, PERIODS, now_s)]


def _words(one: DueCheck) -> str:
    return f"{one.kind} {'+'.join(one.node_ids)} {one.why}"


def test_a_node_that_passed_waits_longer_than_one_that_did_not() -> None:
    for passed, age_s in ((True, 1000.0), (False, 100.0), (None, 100.0)):
        node = a_node("n1", last={"disk": LastCheck(0.0, passed)})
        assert asked(node, now_s=age_s - 1.0) == []
        assert asked(node, now_s=age_s) == ["disk n1 idle"]


def test_an_occasion_asks_for_each_kind_once() -> None:
    last = {"disk": LastCheck(4000.0, True)}
    marked = {"join": 4500.0}
    rules = [CheckRule("disk", frozenset({"join"})), CheckRule("matrix", frozenset({"undrain"}))]
    found = list(due(rules, [a_node("n1", last=last, marked=marked)], PERIODS, 5000.0))
    assert found == [DueCheck("disk", (NodeId("n1"),), "join")]
    checked = a_node("n1", last={"disk": LastCheck(4600.0, False)}, marked=marked)
    assert list(due(rules, [checked], PERIODS, 5000.0)) == []


def test_a_check_that_told_nothing_comes_again_whatever_its_occasion_was() -> None:
    for word in ("join", "undrain", SUSPECT):
        rules = [CheckRule("disk", frozenset({word}))]
        ended = {"disk": LastCheck(4600.0, None)}
        node = a_node("n1", last=ended, marked={word: 4500.0})
        assert list(due(rules, [node], PERIODS, 4699.0)) == []
        assert list(due(rules, [node], PERIODS, 4700.0)) == [
            DueCheck("disk", (NodeId("n1"),), "retry")
        ]
        patient = PERIODS._replace(overdue_s=50.0)  # a suspicion goes first at once only once
        assert not list(overdue(rules, [node], patient, 4749.0))
        assert list(overdue(rules, [node], patient, 4750.0))


def test_a_check_before_a_wide_start_that_told_nothing_is_not_made_for_it_again() -> None:
    rules = [CheckRule("disk", frozenset({WIDE}))]
    node = a_node("n1", last={"disk": LastCheck(4600.0, None)}, marked={WIDE: 4500.0})
    assert list(due(rules, [node], PERIODS, 9000.0)) == []


def test_a_node_has_one_check_at_a_time_and_closed_nodes_come_first() -> None:
    closed = a_node("n9", closed_s=4000.0, closed_for=frozenset({"matrix"}))
    told = asked(a_node("n1"), closed, kinds=("disk", "matrix"))
    assert told == ["matrix n9 retry", "disk n1 idle"]


def test_a_closed_node_is_checked_for_its_reason_alone_and_not_before_its_time() -> None:
    closed = a_node("n1", closed_s=4950.0, closed_for=frozenset({"disk"}))
    assert asked(closed) == []
    assert asked(closed, now_s=5050.0) == ["disk n1 retry"]
    assert asked(a_node("n1", closed_s=0.0)) == []  # people closed it


def test_a_pair_has_equal_devices_and_a_new_partner_first() -> None:
    one = a_node("n1", partners=frozenset({"n2"}))
    others = [a_node("n2"), a_node("n3", devices=("a100-80gb", 8))]
    assert asked(one, *others, kinds=(PAIR,)) == ["all_reduce n1+n2 idle"]
    assert asked(one, *others, a_node("n4"), kinds=(PAIR,)) == ["all_reduce n1+n4 idle"]
    assert asked(one, kinds=(PAIR,)) == []
