"""Recorded forms of a former release: rules and letters are read, calls of webhooks only grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dlq.v1 import notify_service_pb2 as wire
from dlq_common.notices import NOTICES, TARGETS
from dlq_master.store.tables.codec import decode, sealed
from dlq_master.store.tables.notify_rules import NotifyRule
from dlq_notify.rules import rule_of
from dlq_notify.store import NotifyStore
from support.notify_site import a_content, a_store, due_letters

DATA = Path(__file__).parents[2] / "data" / "notify"
# As the first release stored and sent them.
WORDS = (
    "pending", "started", "requeued", "ended", "failed", "preempted", "reclaim", "promise_at_risk",
    "promise_safe", "promise_missed", "time_limit", "start_moved", "events_lost",
)  # fmt: skip
ROW = {
    "v": 1, "rule_id": "n17", "user": "alice", "target": "webhook",
    "address": "https://hooks.example.org/x", "events": ["ended", "failed"],
    "created_time_s": 1795161600.0, "signing_key": "key", "quiet_hours": "22:00-07:00",
}  # fmt: skip
MESSAGE = bytes.fromhex(
    "0a036e31371205616c6963651a05736c61636b221068747470733a2f2f682e746573742f78"
    "2a05656e6465642a0966726f6d5f32303330"
)


def test_no_word_and_no_target_of_a_stored_rule_is_gone() -> None:
    assert set(WORDS) <= NOTICES.keys()
    assert {"mail", "slack", "mattermost", "teams", "webhook"} <= TARGETS.keys()


def test_a_row_of_the_first_release_is_read() -> None:
    rule = decode(sealed(ROW), NotifyRule)
    assert (rule.rule_id, rule.events, rule.gather_s) == ("n17", ("ended", "failed"), None)


def test_a_rule_with_a_word_of_a_newer_master_keeps_the_others() -> None:
    message = wire.NotifyRule.FromString(MESSAGE)
    assert list(message.events) == ["ended", "from_2030"]
    rule = rule_of(message)
    assert (rule.rule_id, rule.target, rule.words) == ("n17", "slack", ("ended",))


def test_the_body_of_a_call_has_all_that_it_had() -> None:
    before = json.loads((DATA / "webhook.json").read_text())
    now = {**a_content().document, "text": a_content().text}
    assert lost(before, now) == []


def test_a_database_of_the_first_release_goes_on(tmp_path: Path) -> None:
    with a_store(tmp_path) as store:
        store.db.executescript((DATA / "notify.sql").read_text())
    with a_store(tmp_path) as again:
        _check_first(again)


def _check_first(store: NotifyStore) -> None:
    assert store.cursor == 41
    (letter,) = due_letters(store, 2e9)
    assert (letter.letter_id, letter.notices[0].text) == ("41-n17-3", "job 17 (train) has failed")
    digest = store.digest("n17", "")
    assert digest is not None
    assert digest.counts == {"job_completed": 1}


def lost(before: Any, now: Any, at: str = "") -> list[str]:
    """The parts of a document that a program would miss."""
    if type(before) is not type(now):
        return [f"{at}: another type"]
    if isinstance(before, dict):
        gone = [f"{at}.{key}" for key in before if key not in now]
        kept = [key for key in before if key in now and before[key] is not None]
        return gone + [part for key in kept for part in lost(before[key], now[key], f"{at}.{key}")]
    if isinstance(before, list) and before and now:
        return lost(before[0], now[0], f"{at}[]")
    return []
