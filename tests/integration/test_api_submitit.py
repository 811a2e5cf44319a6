"""The plug-in of submitit on a real master and agent; without submitit there is nothing to test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.harness import Daemons
from support.waiting import wait_until

submitit = pytest.importorskip("submitit", reason="pip install 'dlq[submitit]'")

from dlq_api.submitit_plugin import DlqExecutor, DlqJob, _cluster_of  # noqa: E402

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("submitit"), ("n1",)).up() as running:
        yield running


@pytest.fixture
def executor(daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in daemons.environment().items():
        monkeypatch.setenv(name, value)
    found = submitit.AutoExecutor(folder=tmp_path / "%j", cluster="dlq")
    found.update_parameters(timeout_min=10, gpus_per_node=1, name="tried", dlq_nice=3)
    yield found
    _cluster_of.cache_clear()
    DlqJob.watcher._jobs.clear()
    DlqJob.watcher._ends.clear()


def test_it_is_found_by_name_and_chosen_only_by_name(executor: Any) -> None:
    assert isinstance(executor._executor, DlqExecutor)
    assert DlqExecutor.affinity() < 0
    with pytest.raises(NameError, match="Unknown argument 'nize'"):
        executor.update_parameters(dlq_nize=1)
    with pytest.raises(ValueError, match="one task"):
        executor.update_parameters(tasks_per_node=2)


def test_functions_run_and_an_array_is_one_array(executor: Any, tmp_path: Path) -> None:
    def square(number: int) -> int:
        sys.stdout.write(f"computes {number}\n")
        return number**2

    job = executor.submit(square, 7)
    jobs = executor.map_array(square, [1, 2, 3])
    assert job.result() == 49
    assert [each.result() for each in jobs] == [1, 4, 9]
    assert len({each.job_id.partition("_")[0] for each in jobs}) == 1
    assert "computes 2" in jobs[1].stdout()
    assert job.state == "COMPLETED"
    assert job.get_info()["nice"] == "3"


def test_a_failure_is_submitits_own_error(executor: Any) -> None:
    def refuse() -> None:
        raise ValueError("not this one")

    job = executor.submit(refuse)
    with pytest.raises(submitit.core.utils.FailedJobError, match="not this one"):
        job.result()


def test_a_preempted_function_is_stored_and_goes_on(
    executor: Any, daemons: Daemons, tmp_path: Path
) -> None:
    class Counting:
        """Goes on where it was."""

        def __init__(self, begun: int = 0) -> None:
            self.begun = begun

        def __call__(self, go_on: str) -> int:
            import os
            import time

            while not self.begun and not os.path.exists(go_on):
                time.sleep(0.02)
            return self.begun

        def checkpoint(self, go_on: str) -> object:
            import submitit.helpers

            return submitit.helpers.DelayedSubmission(Counting(self.begun + 1), go_on)

    job = executor.submit(Counting(), str(tmp_path / "never"))
    number = job.job_id
    DlqJob.watcher.job(number).wait(60.0, until="running")
    wait_until(
        lambda: "Loading pickle" in (job.stderr() or "") + (job.stdout() or ""), what="begun"
    )
    wait_until(lambda: daemons.dlq("requeue", number).code == 0, what="it is asked to leave")
    assert job.result() == 1
