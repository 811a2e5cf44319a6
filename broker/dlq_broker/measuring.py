"""Asks for offers, and delays each by the lateness of its cluster's former jobs.

A job's wait is stored in the record of its hand-over. Records are removed after seven days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dlq_broker.asking import ClusterAnswers
from dlq_broker.doors import ClusterDoor, JobWait, WaitState
from dlq_broker.handover import HandOver
from dlq_broker.lateness import lowered, measured, placed_at, to_look_at
from dlq_broker.offers import OfferAnswer
from dlq_broker.records import HandOverFiles
from dlq_common.errors import TryAgain


def measured_offers(
    records: HandOverFiles,
    doors: Sequence[ClusterDoor],
    ask: Callable[[Mapping[str, Sequence[str]]], ClusterAnswers],
    now_s: float,
) -> list[OfferAnswer]:
    """An answer for each door, in their order. `ask` gets the jobs to look at, by cluster."""
    hands = records.all()
    at = {door.name: placed_at(hands, door.site) for door in doors}
    answers = ask({name: [one.job for one in to_look_at(there)] for name, there in at.items()})
    found = []
    for answer in answers.offers:
        there, waits = at[answer.cluster], answers.waits.get(answer.cluster, {})
        found.append(lowered(answer, measured(there, waits, now_s), now_s))
        _keep(records, to_look_at(there), waits)
    return found


def _keep(records: HandOverFiles, hands: Sequence[HandOver], waits: Mapping[str, JobWait]) -> None:
    """Record the waits that are over."""
    for hand in hands:
        wait = waits.get(hand.job)
        if wait is None or wait.state is WaitState.WAITS:
            continue
        # Another process may do the same, or a full disk keep it: it is asked for again.
        with suppress(TryAgain, OSError), records.held(hand.number):
            records.write(replace(hand, wait=wait))
