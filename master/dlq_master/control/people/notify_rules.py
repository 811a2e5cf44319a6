"""Rules of notifications: added, tried and removed by their users.

They are rows: a restart of the master keeps them, and agents take no part in it. Only `dlq-notify`
acts by them. The events here are its signal to read the rules anew. They hold no address.
"""

from __future__ import annotations

from dlq_common.errors import NotFound, PermissionDenied, QuotaExceeded
from dlq_common.notices import FOR_OPERATORS, TEST_KIND
from dlq_master.control.loop.once import Done, nothing, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import AddNotifyRule, RemoveNotifyRule, TestNotifyRule
from dlq_master.control.stimuli.caller import Caller
from dlq_master.store.tables.notify_rules import MOST_OF_USER, NotifyRule, rules_of


def _is_there(turn: Turn, _ask: AddNotifyRule, word: str) -> bool:
    return word in turn.state.people.notify_rules


def _as_stored(turn: Turn, _ask: AddNotifyRule, word: str) -> NotifyRule:
    return turn.state.people.notify_rules[word]


@once(_as_stored, still=_is_there)
def add(turn: Turn, ask: AddNotifyRule) -> Done[NotifyRule]:
    """Add a rule. QuotaExceeded beyond 20 of a user, PermissionDenied for events of operators."""
    rules = turn.state.people.notify_rules
    used = len(rules_of(rules, ask.caller.name))
    if used >= MOST_OF_USER:
        raise QuotaExceeded(
            f"{ask.caller.name} has {used} rules of notifications",
            hint="remove one: dlq notify remove RULE",
            limit=MOST_OF_USER,
            used=used,
            asked=1,
        )
    if not ask.caller.sees_all and not FOR_OPERATORS.isdisjoint(ask.events):
        words = ", ".join(sorted(FOR_OPERATORS.intersection(ask.events)))
        raise PermissionDenied(f"{words} is for operators", user=ask.caller.name, needs="operator")
    rule = NotifyRule(
        rule_id=f"n{turn.state.journal.next_sequence}",  # given to the event below, once
        user=ask.caller.name,
        target=ask.target,
        address=ask.address,
        events=ask.events,
        created_time_s=turn.now_s,
        signing_key=ask.signing_key,
        with_output=ask.with_output,
        quiet_hours=ask.quiet_hours,
        time_zone=ask.time_zone,
        gather_s=ask.gather_s,
    )
    turn.put(rules, rule)
    turn.note(
        "notify_rule_added",
        actor=ask.caller.actor,
        rule=rule.rule_id,
        user=rule.user,
        target=rule.target,
    )
    return Done(rule, rule.rule_id)


@once(nothing)
def remove(turn: Turn, ask: RemoveNotifyRule) -> Done[None]:
    """Remove a rule. NotFound without one, or for somebody else's."""
    rule = _rule_of(turn, ask.caller, ask.rule_id, others=ask.caller.sees_all)
    turn.drop(turn.state.people.notify_rules, rule.rule_id)
    turn.note("notify_rule_removed", actor=ask.caller.actor, rule=rule.rule_id, user=rule.user)
    return Done(None, rule.rule_id)


@once(nothing)
def test(turn: Turn, ask: TestNotifyRule) -> Done[None]:
    """Note that a message is wanted by this rule."""
    rule = _rule_of(turn, ask.caller, ask.rule_id, others=False)
    turn.note(TEST_KIND, actor=ask.caller.actor, rule=rule.rule_id, user=rule.user)
    return Done(None, rule.rule_id)


def leave(turn: Turn, user: str) -> None:
    """The person is gone: no rule of theirs is left to the next one of the name."""
    rules = turn.state.people.notify_rules
    for rule in rules_of(rules, user):
        turn.drop(rules, rule.rule_id)


def _rule_of(turn: Turn, caller: Caller, rule_id: str, *, others: bool) -> NotifyRule:
    rule = turn.state.people.notify_rules.get(rule_id)
    if rule is None or not (others or rule.user == caller.name):
        raise NotFound(f"there is no rule {rule_id}", kind="notify_rule", id=rule_id)
    return rule
