"""Calls of a user's own program: JSON, signed with the key of the rule.

`Dlq-Signature` is `v1=` and the HMAC-SHA256, by the rule's key, of the timestamp, a dot and the
body. A receiver refuses timestamps that are older than five minutes: a call that was listened to is
worth nothing later. It drops ids that it has seen: a message may come twice.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from dlq_common.clock import Clock
from dlq_notify.letters import Content
from dlq_notify.rules import Rule
from dlq_notify.targets.guarded import GuardedCaller

ID, TIMESTAMP, SIGNATURE = "Dlq-Message-Id", "Dlq-Timestamp", "Dlq-Signature"


class Webhook:
    """Sends by signed calls."""

    def __init__(self, caller: GuardedCaller, clock: Clock) -> None:
        self._caller = caller
        self._clock = clock

    def send(self, rule: Rule, content: Content) -> None:
        """Raises NotSent."""
        body = json.dumps({**content.document, "text": content.text}).encode()
        timestamp = str(int(self._clock.now_s()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "dlq-notify",
            ID: content.letter_id,
            TIMESTAMP: timestamp,
            SIGNATURE: f"v1={signature(rule.signing_key, timestamp, body)}",
        }
        self._caller.post(rule.address, body, headers)


def signature(key: str, timestamp: str, body: bytes) -> str:
    """The HMAC of a call, in hexadecimal digits."""
    return hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
