"""Draining from a page: the price is seen first, and the button asks for exactly that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.browser_site import Site

pytestmark = pytest.mark.browser


def asked_for(page: Any) -> list[dict[str, Any]]:
    """The changes that the page asks for; none of them reaches the master."""
    found: list[dict[str, Any]] = []

    def answer(route: Any) -> None:
        key = route.request.headers["idempotency-key"]
        found.append({"key": key, **json.loads(route.request.post_data)})
        if len(found) == 1:
            route.abort()  # its answer is lost
        else:
            route.fulfill(body="{}", content_type="application/json")

    page.route("**/SetNodeFlags", answer)
    return found


def test_a_chosen_node_is_drained_once_although_an_answer_is_lost(site: Site) -> None:
    page = site.at("/nodes")
    found = asked_for(page)
    page.get_by_label("Choose n2").check()
    page.get_by_role("button", name="What would a drain do?").click()
    page.get_by_role("heading", name="Drain n2").wait_for()
    site.picture(page, "drain")
    assert site.findings(page) == []
    page.get_by_label("Reason, for people").fill("it's the fan")
    assert page.locator("#command").inner_text().endswith("--reason 'it'\\''s the fan' -y")
    page.get_by_role("button", name="Drain").click()
    page.get_by_text("it happens once").wait_for()
    page.get_by_role("button", name="Drain").click()
    page.wait_for_url("**/nodes/n2")
    assert found[0] == found[1]
    assert found[1]["nodeId"] == "n2"
    assert (found[1]["setFlags"], found[1]["reason"]) == (["draining"], "it's the fan")


def test_a_page_with_a_chosen_node_keeps_the_choice(site: Site) -> None:
    page = site.at("/nodes")
    page.get_by_label("Choose n1").check()
    site.submitted("beside-the-choice")
    page.evaluate("document.dispatchEvent(new Event('dlq:renew'))")
    page.wait_for_timeout(1500)
    assert page.get_by_label("Choose n1").is_checked()
