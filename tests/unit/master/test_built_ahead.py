"""The parts of a state that a standby builds ahead: they follow, or they are made anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dlq_master.ahead import Ahead
from dlq_master.control.composition.starting import start
from dlq_master.control.jobs.state import window_of
from dlq_master.control.stimuli import CancelJob, SetPolicy
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.store.batch import TAUGHT, Loaded, MemoryWindow
from support.master_harness import ROOT, Master

NOW_S = 1_790_000_000.0


@pytest.fixture
def master() -> Iterator[Master]:
    found = Master()
    yield found
    found.close()


@pytest.fixture
def ahead(master: Master) -> Ahead:
    """It has seen one waiting job."""
    found = Ahead(master.config)
    master.submit(1)
    found.follow(_loaded(master))
    return found


def _loaded(master: Master) -> Loaded:
    return master.store.load(window_of(master.config))


def _unended(master: Master, loaded: Loaded, ahead: Ahead) -> int:
    """With so many a master begins, which takes over what was built ahead."""
    built = ahead.taken(loaded)
    assert built is not None
    state, _ = start(master.config, loaded, NOW_S, ahead=built)
    assert state.cluster is built.cluster
    return sum(not job.ended for job in state.cluster.jobs.values())


def test_changes_are_followed_and_nothing_is_made_anew(master: Master, ahead: Ahead) -> None:
    for _ in range(2):
        master.submit(1)
    job = master.submit(1)
    ahead.follow(_loaded(master))
    master.edit(CancelJob, job.job_id)
    assert _unended(master, _loaded(master), ahead) == 3
    assert ahead.builds == 1


def test_what_was_taken_is_not_there_any_more(master: Master, ahead: Ahead) -> None:
    assert ahead.taken(_loaded(master)) is not None
    assert ahead.taken(_loaded(master)) is None


def test_nothing_is_there_before_the_first_look(master: Master) -> None:
    assert Ahead(master.config).taken(_loaded(master)) is None


def test_under_another_policy_all_is_made_anew(master: Master, ahead: Ahead) -> None:
    ask = SetPolicy(caller=ROOT, request_id="", policy="dlq", settings=(), force=True)
    master.ask(ask)
    loaded = _loaded(master)
    ahead.follow(loaded)
    assert ahead.builds == 2
    built = ahead.taken(loaded)
    assert built is not None
    assert built.policy.promises == master.state.policy.promises is not None
    ahead.follow(loaded)
    master.ask(replace(ask, policy="tiresias-las", request_id="again"))
    assert ahead.taken(_loaded(master)) is None, "a start does not wait for it"


def test_a_job_that_is_gone_without_its_end_is_not_followed(master: Master, ahead: Ahead) -> None:
    master.edit(CancelJob, master.submit(1).job_id)
    loaded = _loaded(master)
    lost = replace(loaded, jobs=tuple(job for job in loaded.jobs if job.ended))
    assert ahead.taken(lost) is None


def test_a_job_that_has_left_the_window_is_forgotten(master: Master, ahead: Ahead) -> None:
    job = master.submit(1)
    master.edit(CancelJob, job.job_id)
    ahead.follow(_loaded(master))
    without = master.store.load(MemoryWindow(kept_s=0.0, most=0))
    built = ahead.taken(without)
    assert built is not None
    assert job.job_id not in built.cluster.jobs
    assert job.job_id not in built.counted.jobs


def test_a_database_that_no_leader_has_taught_is_left_to_the_start(
    master: Master, ahead: Ahead
) -> None:
    loaded = _loaded(master)
    untaught = replace(loaded, meta={k: v for k, v in loaded.meta.items() if k != TAUGHT})
    ahead.follow(untaught)
    assert ahead.taken(untaught) is None


def test_a_failure_costs_the_head_start_and_nothing_else(
    master: Master, ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("a job")

    master.submit(1)
    monkeypatch.setattr(Cluster, "relearn_from", fail)
    assert ahead.taken(_loaded(master)) is None


def test_what_differs_from_the_rows_is_not_used(
    master: Master, ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.submit(1)
    monkeypatch.setattr(Cluster, "put_job", lambda self, job: job)
    assert ahead.taken(_loaded(master)) is None


def test_the_policy_of_another_file_builds_all_itself(master: Master, ahead: Ahead) -> None:
    """What was built goes by the choice that is stored."""
    loaded = _loaded(master)
    built = ahead.taken(loaded)
    assert built is not None
    scheduler = replace(master.config.scheduler, policy="dlq")
    state, first = start(replace(master.config, scheduler=scheduler), loaded, NOW_S, ahead=built)
    assert state.cluster is not built.cluster
    assert [event.kind for event in first.events] == ["master_started", "policy_set"]
