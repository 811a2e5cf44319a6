"""The line between a user and two clusters breaks at every message, before it arrives or after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from dlq.v1 import job_pb2
from dlq_broker.records import HandOverFiles
from dlq_cli.words import has_ended
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import EPOCH_S, a_job, an_estimate

pytestmark = pytest.mark.integration
LONG = pytest.mark.long(
    "integration/test_cli_many_cuts.py::test_a_cut_at_any_message_loses_no_job_and_doubles_none"
)
NAME = "slow"
SUBMIT = ("submit", "--to", "any", "--gpus", "1", "--name", NAME, "--", "true")
MOVE = ("move", "a:5", "--anyway")


class TwoSites(NamedTuple):
    """Clusters a and b, and a user who has both in a list."""

    a: FakeMaster
    b: FakeMaster
    home: Path

    def dlq(self, *words: str) -> None:
        """It may fail: that is told to its user, and is no loss."""
        Dlq(self.home)(*words, patience_s=0.0)

    def alive(self) -> list[str]:
        """All jobs that may run, by global name."""
        sites = {"a": self.a, "b": self.b}
        return [
            f"{name}:{job.job_id}"
            for name, site in sites.items()
            for job in site.jobs.values()
            if not has_ended(job)
        ]


@contextmanager
def two_sites(home: Path, *, runs: bool = False, waits: bool = False) -> Iterator[TwoSites]:
    """Job 5 waits at a, or runs and has saved; or there is none."""
    a, b = FakeMaster(), FakeMaster()
    try:
        a.estimate, b.estimate = an_estimate(7_200), an_estimate(3_600)
        a.home(home)
        b.home(home / "b")
        tables = ("[clusters.a]", "home = '.'", "storage = ['/shared']")
        others = ("[clusters.b]", "home = 'b'", "storage = ['/shared']")
        (home / "clusters.toml").write_text("\n".join((*tables, *others)))
        if runs or waits:
            job = a_job(5, "running" if runs else "queued", name=NAME)
            if runs:
                job.checkpoint.path = "/shared/run/5/1/step-3"
                a.leaves_after_looks = 2
            a.jobs["5"] = job
            a.specs["5"] = job_pb2.JobSpec(name=NAME, command=["true"])
            a.specs["5"].checkpoint.directory = "/shared/run"
        yield TwoSites(a, b, home)
    finally:
        a.stop()
        b.stop()


@pytest.mark.parametrize("answers", [False, True], ids=["requests", "answers"])
@pytest.mark.parametrize("site", ["a", "b"])
@pytest.mark.parametrize(
    ("act", "times"),
    [
        ("submit", 1),
        ("move running", 1),
        pytest.param("move", 1, marks=LONG),
        pytest.param("submit", 3, marks=LONG),
        pytest.param("move", 3, marks=LONG),
        pytest.param("move running", 3, marks=LONG),
    ],
)
def test_a_cut_at_any_message_loses_no_job_and_doubles_none(
    act: str, times: int, site: str, answers: bool, tmp_path: Path
) -> None:
    """Every message of the first command is cut once, and `times` of the following ones."""
    for first in count():
        home = tmp_path / str(first)
        made = two_sites(home, runs=act == "move running", waits=act == "move")
        with made as sites:
            cut = sites.a if site == "a" else sites.b
            cut.cut(first, answers=answers, times=times)
            sites.dlq(*(SUBMIT if act == "submit" else MOVE))
            reached = cut.was_cut
            assert len(sites.alive()) <= 1
            for _ in range(times + 1):
                sites.dlq("handovers", "--settle")
            hands = HandOverFiles(home / "handovers").all()
            assert not any(hand.is_open for hand in hands)
            told = [hand.global_name for hand in hands]
            expected = told or ([] if act == "submit" else ["a:5"])
            assert sites.alive() == expected
            held = [job for job in sites.a.jobs.values() if job.state == job_pb2.JOB_STATE_HELD]
            assert not held
        if not reached:
            return


@pytest.mark.parametrize("minutes", [-45, -3, 3, 45])
def test_offers_of_clusters_whose_clocks_are_apart_are_compared_from_now(
    minutes: int, tmp_path: Path
) -> None:
    """The clock of b is so far ahead, or behind; it ends the job earlier all the same."""
    with two_sites(tmp_path) as sites:
        shifted = an_estimate(3_600)
        for span in (shifted.start, shifted.end):
            for at in (span.earliest_time, span.likely_time, span.latest_time):
                at.seconds += 60 * minutes
        shifted.estimate_time.seconds = round(EPOCH_S) + 60 * minutes
        sites.b.estimate = shifted
        sites.dlq(*SUBMIT)
        assert sites.alive() == ["b:17"]
        sites.a.estimate = an_estimate(1_800)
        sites.dlq(*SUBMIT)
        assert sites.alive() == ["a:17", "b:17"]
