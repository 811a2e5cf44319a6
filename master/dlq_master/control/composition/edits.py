"""Many edits in one turn: one key, one search for that key, and one row for all of them.

The key's row keeps the refusals. So a repeat is told the same ones, also after a restart of the
master. Agents learn of each job as if it had been edited alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from dlq_common.errors import DlqError, error_from
from dlq_master.control.jobs.jobs import find
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Answer, Turn
from dlq_master.control.stimuli import EditMany, JobEdit, ManyEdited
from dlq_master.model.ids import JobId


def of_each(edit_one: Callable[[Turn, JobEdit], Answer]) -> Callable[[Turn, EditMany], Answer]:
    """The handler of many edits, by the one that takes an edit of any kind."""

    @once(_again)
    def edit_many(turn: Turn, ask: EditMany) -> Done[Answer]:
        answers: dict[JobId, Answer] = {}
        refusals: dict[JobId, DlqError] = {}
        left: list[JobId] = []
        for edit in ask.edits:
            if ask.living_only and _has_ended(turn, edit.job_id):
                left.append(edit.job_id)
                continue
            try:
                answers[edit.job_id] = edit_one(turn, edit)
            except DlqError as refusal:
                refusals[edit.job_id] = refusal
        refused = {job_id: [one.reason, one.what, one.hint] for job_id, one in refusals.items()}

        def answer() -> ManyEdited:
            return ManyEdited({job_id: late() for job_id, late in answers.items()}, refusals)

        return Done(answer, json.dumps({"refused": refused, "left": left}))

    return edit_many


def _has_ended(turn: Turn, job_id: JobId) -> bool:
    job = turn.known_job(job_id)
    return job is not None and job.ended


def _again(turn: Turn, ask: EditMany, word: str) -> Answer:
    """The jobs as they are by now; the refusals are those of the first time."""
    kept = json.loads(word)
    refusals = {
        JobId(int(job_id)): error_from(reason, what, {}, hint)
        for job_id, (reason, what, hint) in kept["refused"].items()
    }
    passed = {*refusals, *kept["left"]}
    changed = [edit.job_id for edit in ask.edits if edit.job_id not in passed]
    for job_id in changed:
        find(turn, ask.caller, job_id)
    return lambda: ManyEdited({job_id: turn.job(job_id) for job_id in changed}, refusals)
