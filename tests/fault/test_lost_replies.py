"""Requests whose answers are lost and that are asked again: each of them makes one job.

`make prove ONLY=replies FULL=1` makes 100,000 of them.
"""

import os
import threading
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from support.cutting_proxy import CuttingProxy
from support.fake_clock import SeededIds
from support.harness import Daemons
from support.proofs import proved

LOST = 0.10
CLIENTS = 4
SETTINGS = "submit_rate = 1000000.0\nsubmit_burst = 1000000\nqueued_per_user = 1000000\n"
SEED = int(os.environ.get("SEED", "1"))


class Submitter(threading.Thread):
    """One client: it submits its share, and asks again whenever an answer is lost."""

    def __init__(self, daemons: Daemons, address: str, number: int, share: int) -> None:
        super().__init__(name=f"submitter-{number}")
        self._daemons, self._address, self._share = daemons, address, share
        self._ids = SeededIds(SEED * 1_000 + number)
        self.made: list[str] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        spec = job_pb2.JobSpec(name="asked-again", command=["true"], working_directory="/tmp")
        spec.resources.gpu_count = 1
        try:
            with self._daemons.connect_as_user(self._address) as line:
                jobs = Jobs(line)
                for _ in range(self._share):
                    key = self._ids.request_id()
                    self.made.append(jobs.submit(spec, request_id=key).job.job_id)
        except BaseException as failure:  # noqa: BLE001 - raised again by the test
            self.failure = failure


def submit_all(root: Path, count: int) -> None:
    """So many requests through a line that loses every tenth answer; count what they made."""
    daemons = Daemons(root, (), settings=SETTINGS)
    with (
        daemons.up(),
        CuttingProxy(daemons.api, share=LOST, seed=SEED).running() as proxy,
    ):
        clients = [Submitter(daemons, proxy.address, n, count // CLIENTS) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
            if client.failure is not None:
                raise client.failure
        with daemons.connect() as line:
            stored = [job.job_id for job in Jobs(line).list(user="*").jobs]
    told = [job_id for client in clients for job_id in client.made]
    assert len(told) == len(set(told)) == count, "two requests got one job"
    assert sorted(stored) == sorted(told), "a request made two jobs, or none"
    assert proxy.cuts > 0
    proved("lost replies", submits=count, jobs=len(stored), replies_lost=proxy.cuts)


@pytest.mark.long(
    "unit/master/control/jobs/test_control_arrays.py::test_a_repeated_submission_is_the_same_array"
)
def test_requests_that_are_asked_again_make_one_job_each(tmp_path: Path) -> None:
    submit_all(tmp_path, 400)


@pytest.mark.torture
def test_many_requests_that_are_asked_again_make_one_job_each(tmp_path: Path) -> None:
    submit_all(tmp_path, int(os.environ.get("SUBMITS", "10000")))
