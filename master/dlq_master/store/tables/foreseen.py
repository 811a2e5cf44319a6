"""The stored forecasts of job starts, and the starts that came."""

from __future__ import annotations

from typing import Final, NamedTuple

from dlq_master.model.ids import JobId

MOST_COMPARED: Final = 1_000  # the newest


class Foreseen(NamedTuple):
    """The first range of starts that the owner of a job could see, at `at_s`; `started_s`: when it
    did start. Instants; `high_s` may be infinite."""

    job_id: JobId
    at_s: float
    low_s: float
    likely_s: float
    high_s: float
    started_s: float | None = None
