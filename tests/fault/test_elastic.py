"""Elastic jobs under real daemons: resized while master and agent are killed, each step done
exactly once.
"""

import json
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from support.harness import HERE, Daemons
from support.json_lines import json_lines
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "fault/test_resize_kills.py",
        "unit/master/control/jobs/test_control_elastic.py",
    ),
]

SOON = 'be_term = "2s"\nslo_term = "8s"\nsave_lead = "0s"\nresume = "0s"\n'
STEP_S, SAVE_S = 0.05, 1.0


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("elastic"), lease=SOON).up() as running:
        running.said("admin", "policy", "set", "dlq", "--set", "cooldown_s=off", "-y")
        yield running


class Elastic:
    """The job, and what it has written down."""

    def __init__(self, daemons: Daemons) -> None:
        self.daemons = daemons
        self.log = daemons.root / "steps"
        spec = job_pb2.JobSpec(
            name="elastic",
            command=[
                sys.executable, str(HERE / "elastic_job.py"), str(self.log), str(STEP_S), str(SAVE_S),  # noqa: E501
            ],
            working_directory=str(daemons.root),
        )  # fmt: skip
        spec.checkpoint.directory = str(daemons.root / "checkpoints")
        spec.resources.gpu_count, spec.resources.node_count = 8, 1
        spec.elastic.gpu_counts.extend([8, 16, 24])
        with daemons.connect() as line:
            self.job_id = Jobs(line).submit(spec).job.job_id

    def lines(self) -> list[dict[str, int]]:
        return json_lines(self.log)

    def sizes(self) -> list[int]:
        """On how many GPUs it has trained, one after the other."""
        return [gpus for gpus, _ in groupby(line["gpus"] for line in self.lines())]

    def shown(self) -> dict[str, Any]:
        (job,) = json.loads(self.daemons.said("show", self.job_id, "--json"))["jobs"]
        return dict(job)

    def until(self, true: Callable[[], bool], what: str) -> None:
        try:
            wait_until(true, what=what, timeout_s=60.0)
        except AssertionError as never:
            raise AssertionError(f"{never}\n{self.daemons.said('events', self.job_id)}") from None


def restart(daemons: Daemons, *names: str) -> None:
    for name in names:
        daemons.kill(name)
    for name in names:
        daemons.start(name)
    for name in names:
        daemons.wait_for(name)


def test_it_shrinks_and_grows_through_kills_and_does_each_step_once(daemons: Daemons) -> None:
    job = Elastic(daemons)
    with daemons.connect() as line:
        jobs = Jobs(line)

        def now() -> job_pb2.Job:
            return jobs.get(job.job_id).job

        job.until(lambda: job.sizes() == [24], "it runs on all there is")
        first, *_ = now().node_ids
        other = jobs.submit(daemons.ledger_job(3600.0, 0, nodes=1)).job.job_id
        # On a busy machine it may have gone on before anybody looks: then the kills come after the
        # resize.
        job.until(lambda: now().stop_cause != "" or now().attempt_count > 1, "it makes room")
        restart(daemons, first, "master")
        job.until(lambda: job.sizes() == [24, 16], "it goes on with two nodes")

        daemons.said("cancel", other)
        job.until(lambda: now().elastic.next_gpu_count > 0 or now().attempt_count > 2, "it grows")
        restart(daemons, "master")
        job.until(lambda: job.sizes() == [24, 16, 24], "it has grown")

        job.log.with_name("steps.enough").touch()
        job.until(lambda: now().state == job_pb2.JOB_STATE_COMPLETED, "it is done")
    steps = [line["step"] for line in job.lines()]
    assert steps == list(range(1, len(steps) + 1)), "each once, in order"
    shown = job.shown()
    assert (shown["lost_gpu_seconds"], shown["elastic"]["resize_count"]) == (0, 2)
    states = [attempt["state"] for attempt in shown["attempts"]]
    assert states == ["preempted", "preempted", "succeeded"]
