"""Messages to Slack, Mattermost and Teams by their incoming webhooks.

A job's name is its user's to choose. So no text goes out as markup: Slack and Teams get plain text
elements, and Mattermost a block of code. Nobody is mentioned, and no link is hidden.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from dlq_notify.letters import Content
from dlq_notify.rules import Rule
from dlq_notify.targets.guarded import GuardedCaller

LONGEST_PLAIN = 2_900  # Slack takes 3,000 characters in a block
LONGEST_CODE = 12_000  # Mattermost takes 16,383
LONGEST_CARD = 12_000  # Teams takes 28 KB


class Chat:
    """Sends by the incoming webhooks of chats."""

    def __init__(self, caller: GuardedCaller) -> None:
        self._caller = caller

    def send(self, rule: Rule, content: Content) -> None:
        """Raises NotSent."""
        body = json.dumps(DRESSES[rule.target](content)).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "dlq-notify"}
        self._caller.post(rule.address, body, {**headers, "Dlq-Message-Id": content.letter_id})


def for_slack(content: Content) -> dict[str, Any]:
    """Blocks of plain text. The text beside them is for notices on a telephone."""
    return {
        "text": _escaped(content.subject),
        "mrkdwn": False,
        "blocks": [
            _plain_block(text) for text in (content.subject, _cut(content.text, LONGEST_PLAIN))
        ],
        "unfurl_links": False,
        "unfurl_media": False,
    }


def for_mattermost(content: Content) -> dict[str, Any]:
    """One block of code, which mentions nobody and has no links."""
    text = _cut(f"{content.subject}\n\n{content.text}", LONGEST_CODE)
    return {"text": f"```\n{text.replace('`', chr(39))}\n```"}


def for_teams(content: Content) -> dict[str, Any]:
    """A card of runs of text: unlike a TextBlock these know no Markdown."""
    lines = _cut(content.text, LONGEST_CARD).split("\n")
    card = {
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [_runs(content.subject, bold=True), *[_runs(line) for line in lines]],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}


DRESSES: Mapping[str, Callable[[Content], dict[str, Any]]] = {
    "slack": for_slack,
    "mattermost": for_mattermost,
    "teams": for_teams,
}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain_block(text: str) -> dict[str, Any]:
    plain = {"type": "plain_text", "text": text, "emoji": False}
    return {"type": "section", "text": plain}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _runs(text: str, *, bold: bool = False) -> dict[str, Any]:
    run: dict[str, Any] = {"type": "TextRun", "text": text or " "}
    if bold:
        run["weight"] = "bolder"
    return {"type": "RichTextBlock", "inlines": [run]}
