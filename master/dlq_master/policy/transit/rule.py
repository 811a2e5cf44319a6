"""By which rule one job takes the GPUs of another: told to whom it happens."""

from __future__ import annotations

from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job


def rule_of(rule: str, loser: Job, winner: Job) -> str:
    """The first thing in which the winner's claim is better; `rule`: the order in words."""
    if winner.band is Band.SLO:
        return "a promised deadline: the slot is planned for it"
    if winner.band is Band.PROFILE:
        return "a trial, to measure how long it runs"
    if winner.band is Band.LIMIT:
        return "its own team may hold no more, and a better job of it waits"
    if loser.band >= Band.BORROW > winner.band:
        return "quota: what a team borrows goes back"
    if winner.band != loser.band:
        return "no slot of its promise is now"
    if winner.promoted:
        return "it has waited too long for what it has run"
    if winner.priority_base != loser.priority_base:
        return "the priority of its queue, or its nice"
    return rule
