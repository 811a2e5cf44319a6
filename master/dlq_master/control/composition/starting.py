"""From what a database holds to a master that is about to speak: its state, and its first rows.

Facts may be missing although earlier masters acknowledged them. The master says so, and serves. To
refuse would lose more: jobs that run end by themselves when nobody renews their leases. The report
of a loss: an error in the log, an event of the journal, and a metric that stays until the next
start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from dlq_common.errors import ConfigError
from dlq_master.control.composition.state import BuiltAhead, State, first_meta, restore
from dlq_master.control.config import MasterConfig
from dlq_master.control.placement.policies import choose, live_policy, take_over
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.event import Fact, JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.policy.policy import Policy
from dlq_master.store.batch import COPY, Batch, Loaded
from dlq_master.store.commit_record import CommittedBatch
from dlq_master.store.stored_tables import LESSONS
from dlq_master.store.tables.chosen_policy import CHOSEN, Chosen, read_chosen, written

MOST_NAMED: Final = 32


class Losses(NamedTuple):
    """`batches`: acknowledged, and not in the database. `audit`: the part missing from the audit's
    files; "" = nothing.
    """

    batches: Sequence[CommittedBatch] = ()
    audit: str = ""

    def events(self) -> Iterator[tuple[str, Mapping[str, Fact], str]]:
        """Kind, facts and cause of each event to be noted."""
        if self.batches:
            yield "commits_lost", _lost_facts(self.batches), self.words()
        if self.audit:
            yield "audit_lost", {}, self.audit

    def words(self) -> str:
        """The losses, for people."""
        first, last = self.batches[0].number, self.batches[-1].number
        which = f"batch {first}" if first == last else f"batches {first} to {last}"
        jobs = _jobs(self.batches)
        named = f"changes of jobs {', '.join(map(str, jobs))}" if jobs else "no change of a job"
        more = " and others" if sum(one.job_count for one in self.batches) > len(jobs) else ""
        return f"acknowledged, and not in the database any more: {which} ({named}{more})"


NO_LOSSES: Final = Losses()


def _lost_facts(batches: Sequence[CommittedBatch]) -> Mapping[str, Fact]:
    return {
        "first_batch": batches[0].number,
        "last_batch": batches[-1].number,
        "jobs": ",".join(map(str, _jobs(batches))),
        "first_event": min((one.first_event for one in batches if one.first_event), default=0),
        "last_event": max(one.last_event for one in batches),
    }


def _jobs(batches: Sequence[CommittedBatch]) -> list[int]:
    return sorted({job for one in batches for job in one.jobs})[:MOST_NAMED]


def start(
    config: MasterConfig,
    loaded: Loaded,
    now_s: float,
    losses: Losses = NO_LOSSES,
    ahead: BuiltAhead | None = None,
) -> tuple[State, Batch]:
    """The state of a starting master, and what must be on disk before it says anything.

    `losses`: acknowledged facts of earlier masters that are missing. A database that lacks batches
    is a copy of the past: numbers leap, and what agents run of later jobs is left alone. `ahead`:
    made by a standby of exactly these rows, under this configuration. Raises ConfigError if
    the policy of the file is none that a master may run.
    """
    if losses.batches:
        loaded = replace(loaded, meta={**loaded.meta, COPY: "yes"})
    stored = loaded.meta.get(CHOSEN)
    policy, chosen = choose(config, stored, now_s, loaded.teams)
    before = None if stored is None else read_chosen(stored)
    if losses.batches or (before is not None and not before.same(chosen)):
        ahead = None
    policy = policy if ahead is None else ahead.policy
    terms = config.lease.terms()
    if ahead is None:
        cluster = Cluster(policy.ordering, terms, config.type_speeds())
    else:
        cluster = ahead.cluster
    state = State(
        config=config,
        terms=terms,
        policy=policy,
        cluster=cluster,
        started_s=now_s,
        epoch=int(loaded.meta.get("epoch", "0")) + 1,
        chosen_policy=chosen,
    )
    restore(state, loaded, ahead)
    batch = Batch(meta={**first_meta(state), CHOSEN: written(chosen)})
    batch.events.append(_event(state, "master_started", {"epoch": state.epoch}))
    for kind, facts, cause in losses.events():
        batch.events.append(_event(state, kind, facts, cause))
    if before is not None and not before.same(chosen):
        _take_over(state, batch, before)
    batch.put(LESSONS, *state.trials.learned.changed(state.cluster).rows)
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
    facts = {"policy": name, "settings": state.placement.chosen.words, "before": before.policy}
    batch.events.append(_event(state, "policy_set", facts, "master.toml"))
    for job_id in gone:
        cause = f"the policy is {name} now, which promises no deadlines"
        batch.events.append(_event(state, "promise_dropped", {}, cause, job_id))


def _policy(chosen: Chosen) -> Policy | None:
    try:
        return live_policy(chosen.policy, chosen.settings)
    except ConfigError:
        return None  # of another version
