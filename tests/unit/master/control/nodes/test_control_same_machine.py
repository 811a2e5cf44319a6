"""A provider that gives one machine for two requests."""

from __future__ import annotations

from dlq_master.control.stimuli.machines import ProviderTold, Verb
from support.rented import Site


def test_the_first_keeps_it_and_the_second_is_of_no_use() -> None:
    site = Site()
    site.submit(due_s=1.0, weight=1e4)
    site.submit(due_s=1.0, weight=1e4)
    site.tick(serve=False)
    acts, site.desk.acts = site.desk.acts, []
    starts = [act for act in acts if act.verb is Verb.START]
    assert len(starts) == 2
    for act in starts:
        site.master.turn(ProviderTold(act=act, instance_id="i-1"))
    first, second = (site.machines()[act.request_id] for act in starts)
    assert (first.state, first.instance_id) == ("starting", "i-1")
    assert (second.state, second.instance_id) == ("stopping", "")
    assert second.fault == f"its provider calls it i-1, as {first.request_id}"
    site.tick(serve=False)
    stops = [act for act in site.desk.acts if act.verb is Verb.STOP]
    assert [(act.request_id, act.instance_id) for act in stops] == [(second.request_id, "")]
