"""Rules of notifications in a live master: whose they are, how many, and what outlives what."""

from __future__ import annotations

from typing import Any

import pytest

from dlq_common.errors import NotFound, PermissionDenied, QuotaExceeded
from dlq_master.control.stimuli import (
    AddNotifyRule,
    Caller,
    DeleteUser,
    NotifyRule,
    RemoveNotifyRule,
    SetUser,
    TestNotifyRule,
)
from dlq_master.store.tables.notify_rules import MOST_OF_USER
from support.master_harness import ROOT, Master

ALICE, BOB, OLGA = Caller("alice", "user"), Caller("bob", "user"), Caller("olga", "operator")
URL = "https://hooks.example.org/very-secret"


def add(master: Master, caller: Caller = ALICE, request_id: str = "", **told: Any) -> NotifyRule:
    wanted: dict[str, Any] = {
        "target": "webhook", "address": URL, "events": ("failed",), "with_output": False,
        "quiet_hours": "", "time_zone": "", "gather_s": None, "signing_key": "key",
    }  # fmt: skip
    ask = AddNotifyRule(caller=caller, request_id=request_id, **(wanted | told))
    rule = master.ask(ask)
    assert isinstance(rule, NotifyRule)
    return rule


def add_user(master: Master, name: str, uid: int) -> None:
    master.ask(
        SetUser(caller=ROOT, request_id="", name=name, role="user", uid=uid, gid=uid, groups=())
    )


def of(master: Master, user: str) -> list[str]:
    return [rule.rule_id for rule in master.loop.published.notify_rules(user)]


def test_a_rule_outlives_the_master_and_a_repeat_adds_no_other(master: Master) -> None:
    first = add(master, request_id="r1", signing_key="one")
    again = add(master, request_id="r1", signing_key="two")
    assert again == first, "the key of the first try stays"
    master.restart()
    assert master.loop.published.notify_rules("alice") == [first]
    assert add(master, request_id="r1", signing_key="three") == first


def test_a_user_has_a_bounded_number_of_rules(master: Master) -> None:
    for _ in range(MOST_OF_USER):
        add(master)
    with pytest.raises(QuotaExceeded):
        add(master)
    add(master, BOB)
    assert len(set(of(master, "alice"))) == MOST_OF_USER


def test_a_rule_is_removed_and_tried_by_its_owner_and_removed_by_operators(master: Master) -> None:
    rule = add(master)
    for ask in (RemoveNotifyRule, TestNotifyRule):
        with pytest.raises(NotFound):
            master.ask(ask(caller=BOB, request_id="", rule_id=rule.rule_id))
    with pytest.raises(NotFound):
        master.ask(TestNotifyRule(caller=OLGA, request_id="", rule_id=rule.rule_id))
    master.ask(TestNotifyRule(caller=ALICE, request_id="", rule_id=rule.rule_id))
    master.ask(RemoveNotifyRule(caller=OLGA, request_id="", rule_id=rule.rule_id))
    assert of(master, "alice") == []
    assert add(master).rule_id != rule.rule_id, "no id comes twice"


def test_events_of_operators_are_for_operators(master: Master) -> None:
    with pytest.raises(PermissionDenied):
        add(master, events=("events_lost",))
    add(master, OLGA, events=("events_lost",))


def test_rules_go_with_their_user_and_the_next_of_the_name_has_none(master: Master) -> None:
    add_user(master, "ada", 2001)
    add_user(master, "bob", 2002)
    ada, bob = Caller("ada", "user"), Caller("bob", "user")
    add(master, ada)
    kept = add(master, bob)
    master.ask(DeleteUser(caller=ROOT, request_id="", name="ada"))
    add_user(master, "ada", 2001)
    assert of(master, "ada") == []
    add(master, ada)
    add_user(master, "ada", 2003)  # another person
    assert of(master, "ada") == []
    master.restart()
    assert (of(master, "ada"), of(master, "bob")) == ([], [kept.rule_id])


def test_no_event_and_no_repr_holds_an_address_or_a_key(master: Master) -> None:
    rule = add(master, signing_key="hush")
    master.ask(TestNotifyRule(caller=ALICE, request_id="", rule_id=rule.rule_id))
    told = [event for event in master.events() if event.kind.startswith("notify_rule_")]
    assert [event.kind for event in told] == ["notify_rule_added", "notify_rule_tested"]
    asked = AddNotifyRule(
        caller=ALICE, request_id="", target="slack", address=URL, events=(), with_output=False,
        quiet_hours="", time_zone="", gather_s=None, signing_key="hush",
    )  # fmt: skip
    for text in (repr(told), repr(rule), repr(asked)):
        assert URL not in text
        assert "hush" not in text
