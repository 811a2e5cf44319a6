"""What a job depends on, as squeue and scontrol of Slurm 22.05 print it."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq_cli.slurm.job_words import dependency


@pytest.mark.parametrize(
    ("ours", "slurms"),
    [
        ("", "(null)"),
        ("afterok:1_*", "afterok:1_*(unfulfilled)"),
        ("after:1_*+5,singleton", "after:1_*+5(unfulfilled),singleton(unfulfilled)"),
        ("aftercorr:1_3", "aftercorr:1_*(unfulfilled)"),
        ("afterok:1_2?afterany:1_3", "afterok:1_2(unfulfilled)?afterany:1_3(unfulfilled)"),
    ],
)
def test_each_term_says_that_it_is_not_there_yet(ours: str, slurms: str) -> None:
    assert dependency(job_pb2.Job(dependency=ours)) == slurms
