"""Which work a stop loses, as far as is known of how a job saves."""

from __future__ import annotations

from typing import Any

import pytest

from dlq_master.control.attempts.work_loss import loss_words
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.attempts.unsaved import stop_loss
from dlq_master.model.jobs.job import Checkpoint, RunRules
from dlq_master.model.resources import CORE_TYPE, Request
from support.builders import a_job, an_attempt

SILENT, SPOKEN = RunRules(saves=False), RunRules(saves=True)
SAVED = Checkpoint("/ckpt/1", 10, 50.0, 1)
RUNNING: dict[str, Any] = {"state": AttemptState.RUNNING, "started_time_s": 100.0}


@pytest.mark.parametrize(
    ("job", "ground"),
    [
        ({"rules": SILENT}, "never_saved"),
        ({"rules": SPOKEN}, ""),
        ({"rules": SPOKEN, "lost_gpu_s": 9.0}, "did_not_save"),
        ({"rules": SILENT, "checkpoint": SAVED}, ""),
        ({"rules": SILENT, "saves": (2.0,), "lost_gpu_s": 9.0}, ""),
        ({"rules": SPOKEN, "checkpoint": SAVED, "keeps_work": False}, "not_kept"),
    ],
)
def test_a_stop_loses_work_of_which_nothing_is_known_that_would_save_it(
    job: dict[str, Any], ground: str
) -> None:
    silent = a_job(7, **job)
    loss = stop_loss(silent, an_attempt(7, slots=(("n1", 3), ("n2", 3)), **RUNNING), 11_620.0)
    assert ("" if loss is None else loss.ground) == ground
    if loss is not None:
        assert (loss.work_s, loss.gpus) == (11_520.0, 4)
        assert loss_words(silent, loss).endswith(": up to 3 h 12 min of work on 4 GPUs")


def test_a_job_without_gpus_loses_work_on_cores() -> None:
    silent = a_job(7, request=Request(gpus=4, nodes=2, gpu_type=CORE_TYPE), rules=SILENT)
    loss = stop_loss(silent, an_attempt(7, slots=(("n1", 3), ("n2", 3)), **RUNNING), 11_620.0)
    assert loss is not None
    assert loss_words(silent, loss).endswith(" of work on 4 cores")


@pytest.mark.parametrize(
    "attempt",
    [
        {"state": AttemptState.PREPARING, "started_time_s": None},
        {**RUNNING, "checkpoint": SAVED._replace(time_s=120.0)},
    ],
)
def test_nothing_is_lost_before_it_runs_and_by_what_has_just_saved(
    attempt: dict[str, Any],
) -> None:
    assert stop_loss(a_job(7, rules=SILENT), an_attempt(7, **attempt), 130.0) is None
