"""The lists of steps that nodes send. A list is stored as it came, and parsed when a user asks for
it.

A long list comes every few seconds from every job that has one, so only its frame is checked here.
`rpc/jobs/steps.py` makes every field valid.
"""

from __future__ import annotations

from typing import Final

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.attempt import TakenSteps
from dlq_master.model.ids import AttemptKey
from dlq_master.rpc.specs.intake import job_id_of

MOST_STEPS: Final = 1_000


def steps_key(message: wire.StepsReport) -> AttemptKey:
    """The attempt of a report. InvalidRequest: no attempt, or a rank below 0."""
    if message.node_rank < 0:
        raise InvalidRequest("ranks are counted from 0", field="steps_report.node_rank")
    return AttemptKey(job_id_of(message.job_id, "steps_report.job_id"), message.fence.attempt)


def is_known(read: Published, key: AttemptKey, epoch: int) -> bool:
    """Whether a report with this fence is about an existing or former attempt."""
    attempt = read.attempt(key)
    if attempt is None:
        attempt = next((each for each in read.attempts(key.job_id) if each.key == key), None)
    return attempt is not None and attempt.epoch == epoch


def steps_of(message: wire.StepsReport, now_s: float) -> TakenSteps:
    """The list in a report. InvalidRequest: it is longer than agents send."""
    if len(message.steps) > MOST_STEPS:
        raise InvalidRequest(f"more than {MOST_STEPS} steps", field="steps_report.steps")
    return TakenSteps(steps_key(message), now_s, message.SerializeToString())
