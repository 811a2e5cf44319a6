"""How long a job is taken to run, as people read it."""

from __future__ import annotations

from dlq.v1.job_pb2 import RunEstimate
from dlq_cli.text.elastic import estimate_text
from dlq_common.text.wire import to_duration


def test_an_estimate_names_its_source_and_how_sure_it_is() -> None:
    told = RunEstimate(source="profiled", confidence="high", detail="by its own steps")
    told.run_duration.CopyFrom(to_duration(7800.0))
    told.step_duration.CopyFrom(to_duration(1.234))
    assert estimate_text(told) == (
        "02:10:00 (profiled, high confidence): by its own steps, 1.23 s a step"
    )


def test_what_is_not_known_says_what_is_missing() -> None:
    told = RunEstimate(unmeasured="no_total", detail="it tells its steps, but not how many")
    told.step_duration.CopyFrom(to_duration(0.5))
    assert estimate_text(told) == "unknown: it tells its steps, but not how many, 0.5 s a step"
