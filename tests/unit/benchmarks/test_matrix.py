"""The matrix: what is asked of the challenger, against whom, and a small cell from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.papers import matrix
from benchmarks.papers.matrix_cases import CELLS, case, cell
from benchmarks.papers.matrix_tables import Judged, markdown, verdict_words
from benchmarks.papers.matrix_verdicts import (
    BOTH,
    COST,
    JCT,
    REFUSED,
    WDMR,
    Metric,
    Ran,
    Row,
    own_verdict,
    verdicts,
)


def ran(
    jct_s: float,
    wdmr: float | None = None,
    be_jct_s: float | None = None,
    cost: float | None = None,
    refused: float = 0,
) -> Ran:
    return Ran(100, refused, jct_s, be_jct_s, wdmr, cost, None, None, 0, 0.5)


def asked(row: Row, *, mixed: bool = False) -> dict[str, bool]:
    return {verdict.asked: verdict.ok for verdict in verdicts(row, "dlq", mixed=mixed)}


def test_each_figure_is_held_against_the_preset_that_is_best_at_it() -> None:
    row = {
        "dlq": ran(103, 0.015, cost=10.3),
        "a": ran(100, 0.5, cost=99),
        "b": ran(900, 0.01, cost=10),
    }
    found = verdicts(row, "dlq", mixed=False)
    assert [(one.asked, one.by, one.ok) for one in found if one.asked != REFUSED] == [
        (JCT, "a", True), (WDMR, "b", True), (COST, "b", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "missed"),
    [
        (ran(103.1, 0.01, cost=10), JCT),
        (ran(100, 0.0151, cost=10), WDMR),
        (ran(100, 0.01, cost=10.31), COST),
        (ran(100, 0.01, cost=10, refused=1), REFUSED),
    ],
)
def test_a_little_more_than_that_is_a_miss_and_only_that(own: Ran, missed: str) -> None:
    found = asked({"dlq": own, "a": ran(100, 0.01, cost=10)})
    assert [name for name, ok in found.items() if not ok] == [missed]


def test_who_refuses_jobs_that_others_run_is_nobody_to_be_held_against() -> None:
    row = {"dlq": ran(100), "a": ran(99), "quick": ran(10, refused=1)}
    (jct,) = [one for one in verdicts(row, "dlq", mixed=False) if one.asked == JCT]
    assert (jct.by, jct.ok) == ("a", True)


def test_a_mixed_workload_asks_that_nobody_is_better_on_both() -> None:
    row = {"dlq": ran(100, 0.1, 50), "deadlines": ran(100, 0.05, 51), "others": ran(100, 0.1, 40)}
    assert asked(row, mixed=True)[BOTH]
    found = verdicts({**row, "both": ran(100, 0.09, 49)}, "dlq", mixed=True)
    assert verdict_words(found).endswith("misses not beaten on both: beaten by both")


def test_alone_or_absent_nothing_is_asked() -> None:
    assert verdicts({"dlq": ran(1)}, "dlq", mixed=False) == []
    assert verdicts({"a": ran(1), "b": ran(1)}, "dlq", mixed=False) == []


def test_a_line_of_the_docs_says_what_misses() -> None:
    rows = {("own-480", "known"): {"dlq": ran(110), "srtf": ran(100)}}
    found = {
        key: Judged(verdicts(row, "dlq", mixed=False), own_verdict(row, "dlq", Metric.AVERAGE))
        for key, row in rows.items()
    }
    last = markdown(rows, found, "dlq").splitlines()[-1]
    assert last == (
        "| own-480, known | 110 | 100, `srtf` |  |  |  |  |  |  | 200 "
        "| misses avg JCT: 1.10 x, 110 against 100 of srtf "
        "| misses avg JCT: 1.10 x, 110 against 100 of srtf |"
    )


@pytest.mark.parametrize(
    ("metric", "within", "beyond"),
    [
        (Metric.AVERAGE, ran(102, 9, cost=99), ran(102.1, 0.01, cost=10)),
        (Metric.MISSES, ran(900, 0.0102, cost=99), ran(100, 0.0103, cost=10)),
        (Metric.BILL, ran(900, 9, cost=10.2), ran(100, 0.01, cost=10.21)),
    ],
)
def test_the_own_metric_counts_alone_and_within_two_percent(
    metric: Metric, within: Ran, beyond: Ran
) -> None:
    best = ran(100, 0.01, cost=10)
    verdict = own_verdict({"dlq": within, "a": best}, "dlq", metric)
    assert verdict is not None
    assert (verdict.asked, verdict.ok) == (metric.value, True)
    missed = own_verdict({"dlq": beyond, "a": best}, "dlq", metric)
    assert missed is not None
    assert not missed.ok


@pytest.mark.parametrize(
    ("wdmr", "be_jct_s", "ok"),
    [
        (0.099, 49.5, True),  # better on both, by less than two percent
        (0.09, 50, True),  # not better on both
        (0.099, 48, False),
        (0.09, 49.9, False),
    ],
)
def test_two_figures_are_beaten_by_a_preset_that_is_better_on_both(
    wdmr: float, be_jct_s: float, ok: bool
) -> None:
    row = {"dlq": ran(100, 0.1, 50), "a": ran(900, wdmr, be_jct_s)}
    verdict = own_verdict(row, "dlq", Metric.JOINT)
    assert verdict is not None
    assert verdict.ok is ok


def test_each_workload_declares_its_own_metric() -> None:
    """Rented or kept nodes cost money; deadlines are for all jobs, for some or for none."""
    for name, its in CELLS.items():
        kinds = {job.kind for job in case(name, 1, 40).trace.jobs}
        paid = name.startswith(("gpuaas", "kept"))
        by_kinds = Metric.AVERAGE if kinds == {"be"} else Metric.JOINT
        by_kinds = by_kinds if "be" in kinds else Metric.MISSES
        assert its.metric is (Metric.BILL if paid else by_kinds), name


def test_a_mixed_case_has_deadlines_best_effort_elastic_jobs_and_loans() -> None:
    made = case("mixed-typed", 1, 60)
    jobs = made.trace.jobs
    assert {job.kind for job in jobs} == {"strict", "soft", "be"}
    assert sum((job.max_workers or 0) > (job.min_workers or 0) for job in jobs) == 12
    assert made.cluster.lends
    assert len(jobs) == 60
    assert made == case.__wrapped__("mixed-typed", 1, 60)


def test_a_cell_of_nobody_is_named() -> None:
    with pytest.raises(ValueError, match="'philly2' is neither"):
        cell("philly2")


def test_a_small_cell_from_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Who is not told run times stands in both columns, srtf in each as it was told."""
    words = (
        "--cells tiresias-60 --policies fifo srtf --policy srtf --workers 1 --json --know "
        "known unknown"
    )
    matrix.main(words.split())
    document = json.loads(capsys.readouterr().out)
    known, unknown = (one["presets"] for one in document["details"]["cells"])
    assert known["fifo"] == unknown["fifo"]
    assert known["srtf"]["avg_jct_s"] < unknown["srtf"]["avg_jct_s"] < known["fifo"]["avg_jct_s"]
    assert [(one["name"], one["met"]) for one in document["figures"]][-1] == (
        "srtf: all that is asked",
        True,
    )


def test_where_nodes_are_rented_those_that_rent_are_compared_in_one_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (
        "--cells gpuaas-exp --policies fifo gpuaas-edf --policy gpuaas-marginal --workers 1 --json"
    )
    matrix.main(words.split())
    document = json.loads(capsys.readouterr().out)
    (column,) = document["details"]["cells"]
    assert (column["know"], set(column["presets"])) == ("known", {"gpuaas-edf", "gpuaas-marginal"})
    met = {one["name"].split(": ")[1]: one["met"] for one in document["figures"]}
    assert met["cost of gpuaas-marginal"]
    assert not met["avg JCT of gpuaas-marginal"]  # the others rent more


def test_a_file_of_ones_own_may_be_mixed(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    rows = "".join(f"{number},{number},1,600\n" for number in range(20))
    file.write_text(f"job_id,submit_time_s,num_gpus,duration_s\n{rows}")
    assert {job.kind for job in case(f"{file}@2x4", 1, 1).trace.jobs} == {"be"}
    mixed = case(f"{file}@2x4+mixed", 1, 1).trace.jobs
    assert (sum(job.kind == "strict" for job in mixed), len(mixed)) == (14, 20)
    assert sum(job.max_workers is not None for job in mixed) == 4
