"""What its provider takes back at an instant is not waited for beyond it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from dlq_common.daemon.config import Seconds
from support.rented import HOUR_S, SPOT, Site


def test_a_machine_that_still_boots_is_given_back_when_its_provider_takes_all() -> None:
    """Who would run there still had to save at once, as in a replay."""
    now_s = Site().master.clock.now_s()
    until = datetime.fromtimestamp(now_s + 3200.0, UTC).isoformat()
    site = Site(replace(SPOT, available_until=until, leave=Seconds(60.0), boot=Seconds(1100.0)))
    site.submit(lasts_s=5.0, due_s=60.0, weight=1000.0 * HOUR_S)
    site.tick()
    site.tick()
    assert site.only().state == "starting"
    site.tick(3100.0)
    assert site.only().state == "starting"
    site.tick(40.0)
    site.tick()
    assert (site.only().state, site.only().fault) == ("away", "its provider takes it back")
    assert site.provider.there == {}
    for _ in range(3):
        site.tick()
    assert len(site.machines()) == 1, "there is no other to be had"
