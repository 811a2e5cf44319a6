"""Chronus' own workloads: the rows in the repository, and P_MIX1, which is made of P_SLO."""

from __future__ import annotations

from collections import Counter

from benchmarks import ROOT
from benchmarks.papers.chronus.released import MIX2_FILE, SLO_FILE, mix1, thinned

from dlq_simulator.traces import read_trace


def test_the_rows_in_the_repository_have_the_kinds_of_the_paper() -> None:
    slo = read_trace(str(ROOT / SLO_FILE), "auto", skip_bad=True)
    mix2 = read_trace(str(ROOT / MIX2_FILE), "auto", skip_bad=True)
    assert {job.kind for job in slo.jobs} == {"strict"}
    kinds = Counter(job.kind for job in mix2.jobs)
    shares = {kind: round(10 * count / len(mix2.jobs)) for kind, count in kinds.items()}
    assert shares == {"strict": 3, "soft": 6, "be": 1}


def test_p_mix1_is_p_slo_with_three_in_ten_deadlines_fewer() -> None:
    slo = read_trace(str(ROOT / SLO_FILE), "auto", skip_bad=True)
    made = mix1(slo)
    assert made.jobs == mix1(slo).jobs
    lost = [row for row in made.jobs if row.deadline_s is None]
    assert len(lost) == round(0.3 * len(slo.jobs))
    kept = [(row, old) for row, old in zip(made.jobs, slo.jobs, strict=True) if row.deadline_s]
    assert all(row == old for row, old in kept)


def test_a_day_of_it_is_replayed() -> None:
    found = thinned("P_MIX1", "edf", [], 0.0, 0.2)
    assert found["jobs"] == 95
    assert found["be_jct_h"] is not None
