"""From what a database holds to a master that is about to speak: its state, and its first rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dlq_common.errors import ConfigError
from dlq_master.control.composition.startup_losses import NO_LOSSES, Losses
from dlq_master.control.composition.state import State, first_meta, restore
from dlq_master.control.config import MasterConfig
from dlq_master.control.placement.policies import choose, live_policy, take_over
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.event import Fact, JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.policy.policy import Policy
from dlq_master.store.backup import COPY
from dlq_master.store.batch import Batch, Loaded
from dlq_master.store.tables.chosen_policy import CHOSEN, Chosen, read_chosen, written


def start(
    config: MasterConfig, loaded: Loaded, now_s: float, losses: Losses = NO_LOSSES
) -> tuple[State, Batch]:
    """The state of a starting master, and what must be on disk before it says anything.

    `losses`: acknowledged facts of earlier masters that are missing. A database that lacks batches
    is a copy of the past: numbers leap, and what agents run of later jobs is left alone. Raises
    ConfigError if the policy of the file is none that a master may run.
    """
    if losses.batches:
        loaded = replace(loaded, meta={**loaded.meta, COPY: "yes"})
    stored = loaded.meta.get(CHOSEN)
    policy, chosen = choose(config, stored, now_s, loaded.teams)
    terms = config.lease.terms()
    state = State(
        config=config,
        terms=terms,
        policy=policy,
        cluster=Cluster(policy.ordering, terms),
        started_s=now_s,
        epoch=int(loaded.meta.get("epoch", "0")) + 1,
        chosen_policy=chosen,
    )
    restore(state, loaded)
    batch = Batch(meta={**first_meta(state), CHOSEN: written(chosen)})
    batch.events.append(_event(state, "master_started", {"epoch": state.epoch}))
    for kind, facts, cause in losses.events():
        batch.events.append(_event(state, kind, facts, cause))
    before = None if stored is None else read_chosen(stored)
    if before is not None and not before.same(chosen):
        _take_over(state, batch, before)
    return state, batch


# --- helpers, in order of use ---------------------------------------------------------------------


def _event(
    state: State, kind: str, facts: Mapping[str, Fact], cause: str = "", job_id: JobId | None = None
) -> JournalEvent:
    event = JournalEvent(
        kind=kind,
        time_s=state.started_s,
        seq=state.journal.next_sequence,
        job_id=job_id,
        cause=cause,
        actor="master",
        data=facts,
    )
    state.journal.next_sequence += 1
    return event


def _take_over(state: State, batch: Batch, before: Chosen) -> None:
    """The file names another policy than the last master went by: nobody can be asked any more."""
    changed, gone = take_over(state, _policy(before))
    batch.jobs += changed
    name = state.placement.chosen.policy
    told = {"policy": name, "settings": state.placement.chosen.words, "before": before.policy}
    batch.events.append(_event(state, "policy_set", told, "master.toml"))
    for job_id in gone:
        cause = f"the policy is {name} now, which promises no deadlines"
        batch.events.append(_event(state, "promise_dropped", {}, cause, job_id))


def _policy(chosen: Chosen) -> Policy | None:
    try:
        return live_policy(chosen.policy, chosen.settings)
    except ConfigError:
        return None  # of another version
