"""Results go to JSON and back; slowdowns follow from them by the master's formulas."""

import json
import subprocess
import sys

import pytest

from dlq_common import slowdown
from dlq_profiler.job import job_of
from dlq_profiler.prediction import predict, skew_word
from dlq_profiler.process import profiles_of
from dlq_profiler.report import facts
from dlq_profiler.results import Interval, JobProfile, ProcessProfile, Tensors
from support.model_shapes import buckets, tensors
from support.traffic import ring_job, server_job

ALEXNET = tensors("alexnet")
PROCESSES = profiles_of(
    ring_job([list(buckets(ALEXNET))] * 6, ranks=2), {100: [Tensors((4, 8), 100, 10)]}
)
SERVED = profiles_of(
    tape.recording(pid=place) for place, tape in enumerate(server_job(ALEXNET).values())
)


@pytest.mark.parametrize("process", [*PROCESSES, *SERVED])
def test_a_process_comes_back_from_json(process: ProcessProfile) -> None:
    assert ProcessProfile.of(json.loads(json.dumps(process.facts()))) == process


@pytest.mark.parametrize("profile", [job_of(PROCESSES), job_of(SERVED), job_of(())])
def test_a_job_comes_back_from_json(profile: JobProfile) -> None:
    assert JobProfile.of(json.loads(profile.json())) == profile
    assert JobProfile.of(facts(profile)) == profile


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dlq\.profile\.v9"):
        JobProfile.of({**job_of(()).facts(), "schema": "dlq.profile.v9"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"period_s": "0.3"},
        {"period_s": -1.0},
        {"period_s": float("nan")},
        {"processes": True},
        {"buckets": [1.5]},
        {"phases": "many"},
        {"skew": {"lower": 0.1}},
        {"traffic": {"method": "guess", "confidence": "exact", "reason": None}},
        {"servers": [{"peer": "10.0.0.1:1", "side": 1, "sent_bytes": 5.0}]},
        {"servers": [["10.0.0.1:1", 1, 5.0, 1]]},
        {"pattern": "star"},
    ],
)
def test_what_is_no_result_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        JobProfile.of({**job_of(PROCESSES).facts(), **wrong})


def test_rho_and_slowdown_are_the_masters() -> None:
    found = job_of(SERVED)
    assert found.bytes_per_iteration is not None
    assert found.period_s is not None
    rho = found.bytes_per_iteration / 1e8 / found.period_s
    predicted = predict(found, {"slow": 1e8})
    assert predicted is not None
    assert predicted["slow"].rho == pytest.approx(rho)
    assert predicted["slow"].slowdown == slowdown.slowdown(rho, slowdown.OVERLAP)
    assert predicted["slow"].bounds == (max(1.0, rho), 1.0 + rho)
    assert predict(job_of(()), {"slow": 1e8}) is None


def test_a_skew_is_high_or_low_only_if_all_of_it_is() -> None:
    limit = slowdown.PACKLIMIT
    assert skew_word(Interval(limit + 0.01, 0.9)) == "high"
    assert skew_word(Interval(0.1, limit)) == "low"
    assert skew_word(Interval(limit, limit + 0.01)) == "unknown"
    assert skew_word(None) == "unknown"


def test_merging_and_predicting_need_no_numpy() -> None:
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from dlq_profiler import injection, job, prediction, report, results\n"
        "from dlq_profiler.records import control\n"
        "assert job.job_of(()).processes == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
