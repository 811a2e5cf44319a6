"""Gangs on real agents: none of their ranks starts before all can, through deaths of everybody."""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = ROOT / ".venv-torch" / "bin" / "torchrun"
TELL = """\
import json, os, sys
name = sys.argv[1] + "/" + os.environ["DLQ_ATTEMPT"] + "." + os.environ["NODE_RANK"]
with open(name, "x") as file:
    json.dump(dict(os.environ), file)
"""
MEET = """\
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
ranks = torch.zeros(dist.get_world_size())
ranks[dist.get_rank()] = dist.get_rank() + 1.0
dist.all_reduce(ranks)
if os.environ["RANK"] == "0":
    open(sys.argv[1], "w").write(" ".join(str(int(rank)) for rank in ranks))
dist.destroy_process_group()
"""
SOON = 'barrier_timeout = "4s"\nretry_backoff = "1s"'


@pytest.fixture
def daemons(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemons]:
    settings = getattr(request, "param", "")
    with Daemons(tmp_path, agents=("n1", "n2"), settings=settings).up() as running:
        yield running


@pytest.fixture
def jobs(daemons: Daemons) -> Iterator[Jobs]:
    with daemons.connect() as line:
        yield Jobs(line)


def gang(daemons: Daemons, *command: str, gpus: int = 4, nodes: int = 2) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec(command=command, working_directory=str(daemons.root))
    spec.resources.gpu_count = gpus
    spec.resources.node_count = nodes
    return spec


def teller(daemons: Daemons, **more: int) -> job_pb2.JobSpec:
    """A gang each of whose ranks writes its environment, once, and ends."""
    told = daemons.root / "told"
    told.mkdir(exist_ok=True)
    return gang(daemons, sys.executable, "-c", TELL, str(told), **more)


def told(daemons: Daemons) -> dict[str, dict[str, str]]:
    """What the ranks have written, by `ATTEMPT.NODE_RANK`."""
    return {path.name: json.loads(path.read_text()) for path in (daemons.root / "told").iterdir()}


def wait_for_end(jobs: Jobs, job_id: str) -> job_pb2.Job:
    wait_until(
        lambda: jobs.get(job_id).job.HasField("end_time"), what="the job ends", timeout_s=90.0
    )
    return jobs.get(job_id).job


def wait_for_phase(jobs: Jobs, job_id: str, *phases: str) -> None:
    def is_there() -> bool:
        attempts = jobs.get(job_id).attempts
        return bool(attempts) and tuple(rank.phase for rank in attempts[-1].ranks) == phases

    wait_until(is_there, what=f"its ranks are {phases}", timeout_s=60.0)


def test_all_ranks_are_told_one_port_that_nobody_listens_on(daemons: Daemons, jobs: Jobs) -> None:
    with ExitStack() as listening:
        for port in range(30_000, 30_006):  # what the master would say first
            listening.enter_context(socket.create_server(("127.0.0.1", port)))
        job_id = jobs.submit(teller(daemons)).job.job_id
        assert wait_for_end(jobs, job_id).state == job_pb2.JOB_STATE_COMPLETED
    first, second = (told(daemons)[f"1.{rank}"] for rank in (0, 1))
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert 30_006 <= int(first["MASTER_PORT"]) < 31_000
    assert (first["PET_NODE_RANK"], second["PET_NODE_RANK"]) == ("0", "1")
    assert first["PET_RDZV_ID"] == second["PET_RDZV_ID"] == f"{job_id}.1"
    assert first["PET_RDZV_ENDPOINT"] == f"127.0.0.1:{first['MASTER_PORT']}"


@pytest.mark.parametrize("daemons", [SOON], indirect=True)
def test_a_node_that_is_not_ready_in_time_is_named_and_the_others_are_free_again(
    daemons: Daemons, jobs: Jobs
) -> None:
    daemons.freeze("n2")
    job_id = jobs.submit(teller(daemons, gpus=16)).job.job_id
    wait_for_phase(jobs, job_id, "ready", "waiting")
    wait_until(
        lambda: jobs.get(job_id).attempts[0].HasField("end_time"),
        what="the attempt ends", timeout_s=60.0,
    )  # fmt: skip
    failed = jobs.get(job_id).attempts[0]
    assert failed.state == job_pb2.ATTEMPT_STATE_START_FAILED
    assert failed.ranks[1].error.startswith("n2: not ready")
    assert failed.first_failed_rank == 1
    other = jobs.submit(gang(daemons, "/bin/true", gpus=8, nodes=1)).job.job_id
    assert wait_for_end(jobs, other).state == job_pb2.JOB_STATE_COMPLETED
    daemons.thaw("n2")
    assert wait_for_end(jobs, job_id).state == job_pb2.JOB_STATE_COMPLETED
    assert {name.split(".")[0] for name in told(daemons)} == {str(len(jobs.get(job_id).attempts))}


@pytest.mark.parametrize("victim", ["n1", "master"])
def test_who_dies_while_a_gang_waits_at_its_barrier_finds_it_there_again(
    daemons: Daemons, jobs: Jobs, victim: str
) -> None:
    daemons.freeze("n2")
    job_id = jobs.submit(teller(daemons)).job.job_id
    wait_for_phase(jobs, job_id, "ready", "waiting")
    daemons.kill(victim)
    assert told(daemons) == {}
    daemons.start(victim)
    daemons.wait_for(victim)
    daemons.thaw("n2")
    assert wait_for_end(jobs, job_id).state == job_pb2.JOB_STATE_COMPLETED
    ports = {told(daemons)[f"1.{rank}"]["MASTER_PORT"] for rank in (0, 1)}
    assert len(ports) == 1
    assert len(jobs.get(job_id).attempts) == 1


@pytest.mark.torch
def test_a_bare_torchrun_meets_across_the_nodes(daemons: Daemons, jobs: Jobs) -> None:
    script, met = daemons.root / "train.py", daemons.root / "met"
    script.write_text(MEET)
    spec = gang(daemons, str(TORCHRUN), str(script), str(met))
    spec.environment.update({"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
    job_id = jobs.submit(spec).job.job_id
    ended = wait_for_end(jobs, job_id)
    assert ended.state == job_pb2.JOB_STATE_COMPLETED, ended
    assert met.read_text() == "1 2 3 4"
