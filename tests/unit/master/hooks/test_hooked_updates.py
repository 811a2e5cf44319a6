"""Updates through the operator's hook: its word holds for the job that it has seen alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import (
    AlreadyExists,
    Conflict,
    DlqError,
    IllegalTransition,
    PermissionDenied,
)
from dlq_master.control.stimuli import SAME, UpdateJob
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.specs.hooked import SubmitHooks
from dlq_master.rpc.specs.intake import Edit, submit_stimulus, update_stimulus
from support.hook_files import a_desk
from support.master_harness import ALICE, Master

SOURCE = """
def on_submit(job, user, context):
    if job.name == "throw":
        raise ValueError("no such project")
    job.nice = max(job.nice, 10)
    return job, f"{context.running} {job.time_limit_s}"
"""


class Updates:
    """Updates of a job of alice's at a real loop, each seen by the hook before."""

    def __init__(self, source: str, policy: str, master: Master) -> None:
        self.source, self.policy, self.master = source, policy, master
        spec = job_pb2.JobSpec(command=["/bin/true"])
        spec.resources.gpu_count = 1
        ask = submit_stimulus(wire.SubmitJobRequest(request_id="first", spec=spec), ALICE)
        self.job_id = master.ask(ask).job.job_id
        self.stale: list[DlqError] = []  # refusals of the loop, before it takes the update

    def seen(self, **wishes: Any) -> UpdateJob:
        """The update as it comes to the loop."""
        asked = wire.UpdateJobRequest(request_id="u", job_id=str(self.job_id), **wishes)
        return asyncio.run(self._seen(asked))

    async def _seen(self, asked: wire.UpdateJobRequest) -> UpdateJob:
        desk = a_desk(self.source, self.policy)

        async def ask(stimulus: UpdateJob) -> UpdateJob:
            if self.stale:
                raise self.stale.pop()
            return stimulus

        call: Any = SimpleNamespace(read=self.master.loop.published, ask=ask)
        updates = SubmitHooks(desk).updates(call, asked, self.made)
        assert updates is not None
        edit = self.made(
            Edit(caller=ALICE, request_id="u", job_id=self.job_id, expected_version=0), asked
        )
        try:
            made: UpdateJob = await updates.ask(edit)
        finally:
            self.calls = dict(desk.calls)
            await desk.close()
        return made

    def made(self, edit: Edit, asked: wire.UpdateJobRequest) -> UpdateJob:
        return update_stimulus(asked, edit)

    def job(self) -> Job:
        return self.master.job(self.job_id)


@pytest.fixture
def updates() -> Iterator[Updates]:
    master = Master()
    yield Updates(SOURCE, "closed", master)
    master.close()


def test_the_hook_sees_the_job_as_it_would_be(updates: Updates) -> None:
    seen = updates.seen(time_limit_duration=Duration(seconds=60))
    updated = updates.master.ask(seen)
    assert (updates.job().nice, updates.job().time_limit_s) == (10, 60.0)
    assert [note.text or note.field for note in updated.notes] == ["nice", "False 60.0"]
    event = [it for it in updates.master.events() if it.kind == "job_updated"][-1]
    assert "hook on_submit changed nice from 0 to 10" in str(event.data)


def test_a_repeat_is_known_by_the_wishes_of_the_user(updates: Updates) -> None:
    seen = updates.seen(name="other")
    first = updates.master.ask(seen)
    updates.master.restart()
    again = updates.master.ask(replace(seen, nice=SAME, hooked=None))
    assert (again.changes, again.notes) == (first.changes, first.notes)
    with pytest.raises(AlreadyExists):
        updates.master.ask(replace(seen, name="third", nice=SAME, hooked=None))


def test_its_word_holds_for_no_job_that_has_changed_since(updates: Updates) -> None:
    seen = updates.seen(name="other")
    updates.master.edit(UpdateJob, updates.job_id, time_limit_s=3600.0)
    with pytest.raises(Conflict, match="has changed"):
        updates.master.ask(seen)
    updates.stale = [Conflict("job 1 has changed", version=2)]
    updates.master.ask(updates.seen(name="other"))
    assert updates.calls["on_submit", "ok"] == 1  # it was told the same again
    assert (updates.job().name, updates.job().time_limit_s) == ("other", 3600.0)


def test_a_dry_run_changes_nothing_and_tells_all(updates: Updates) -> None:
    before = updates.job()
    told = updates.master.ask(updates.seen(name="other", validate_only=True))
    assert [change.field for change in told.changes] == ["name", "nice"]
    assert len(told.notes) == 2
    assert updates.job() == before


def test_a_refusal_and_a_failure_change_nothing(updates: Updates) -> None:
    updates.master.edit(UpdateJob, updates.job_id, name="throw")
    with pytest.raises(IllegalTransition, match="without it no job is accepted") as caught:
        updates.seen(nice=20)
    assert "nothing changed" in caught.value.hint
    updates.policy = "open"
    note = updates.master.ask(updates.seen(nice=20)).notes[0]
    assert note.text.endswith("no such project (line 4); the update was made as it was sent")
    assert updates.job().nice == 20


def test_a_hook_refuses_an_update_in_words(updates: Updates) -> None:
    updates.source = "from dlq_hooks import Refuse\ndef on_submit(*_): return Refuse('no more')"
    with pytest.raises(PermissionDenied, match="refuses this update: no more"):
        updates.seen(name="other")
    updates.source = "def on_submit(job, *_):\n    job.hold = True"
    updates.source += "\n    return job"
    with pytest.raises(PermissionDenied, match="sets hold in such a job, which no update can"):
        updates.seen(name="other")
