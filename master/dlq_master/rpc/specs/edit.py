"""The fields of all requests that edit one job, and the same once checked."""

from __future__ import annotations

from typing import Protocol, TypedDict

from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import JobId


class EditRequest(Protocol):
    """The fields of all requests that edit a job."""

    request_id: str
    job_id: str
    expected_version: int


class Edit(TypedDict):
    """The same, checked, for one job."""

    caller: Caller
    request_id: str
    job_id: JobId
    expected_version: int
