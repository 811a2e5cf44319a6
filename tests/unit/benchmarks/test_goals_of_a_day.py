"""Benchmarks that put parts of the master on a stage of their own still fit these parts."""

from __future__ import annotations

import sys

import pytest
from benchmarks.node import idle_jobs
from benchmarks.profiler import hung_starts, stragglers


def test_idle_jobs_are_judged_by_the_masters_own_rules(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["idle_jobs", "--jobs", "20", "--hours", "1.5"])
    idle_jobs.main()
    said = capsys.readouterr().out
    assert "stalls with the right rank: 2 jobs" in said
    assert "other jobs that were paused: 0 jobs" in said


def test_hung_starts_are_found_by_the_masters_own_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hung_starts", "--jobs", "40"])
    hung_starts.main()
    said = capsys.readouterr().out
    assert "hung jobs found, first: 6 jobs" in said
    assert "other jobs that were told: 0 jobs" in said


def test_stragglers_are_found_by_the_masters_own_scores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["stragglers", "--gangs", "10", "--healthy", "2"])
    stragglers.main()
    said = capsys.readouterr().out
    assert "gangs with another node told: 0 gangs" in said
    assert "told in the end, and alone: 100 %" in said
