"""Several processes for each node: one for each GPU, or workers and parameter servers."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from support.harness import BIN, Daemons
from support.waiting import wait_until

pytestmark = pytest.mark.e2e

TELL = """\
import json, os, sys
name = sys.argv[1] + "/" + (os.environ.get("RANK") or os.environ["DLQ_ROLE"] + os.environ["DLQ_ROLE_INDEX"])
with open(name + ".draft", "x") as file:
    json.dump(dict(os.environ), file)
os.rename(name + ".draft", name)
print("this is", os.path.basename(name), flush=True)
"""  # noqa: E501
# One of four hangs for ever, deaf to TERM; another fails once that is so.
FAIL = """\
import os, signal, sys, time
mark = sys.argv[1] + "/deaf" + os.environ["RANK"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(mark, "x").close()
while os.environ["RANK"] != "3" or len(os.listdir(sys.argv[1])) < 4:
    time.sleep(0.05)
print("no more data", file=sys.stderr, flush=True)
sys.exit(7)
"""
SERVE = """
import time
while os.environ["DLQ_ROLE"] == "ps":
    time.sleep(0.1)
"""
PS_FAILS = """\
import os, sys, time
if os.environ["DLQ_ROLE"] == "ps":
    print("disk full", flush=True)
    sys.exit(5)
time.sleep(1000)
"""


@pytest.fixture
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    root = tmp_path_factory.mktemp("tasks")
    with Daemons(root, agents=("n1", "n2")).up() as running:
        (root / "told").mkdir()
        yield running


@pytest.fixture
def jobs(daemons: Daemons) -> Iterator[Jobs]:
    with daemons.connect() as line:
        yield Jobs(line)


def spec_of(daemons: Daemons, program: str, *, gpus: int = 4, nodes: int = 2) -> job_pb2.JobSpec:
    command = [sys.executable, "-c", program, str(daemons.root / "told")]
    spec = job_pb2.JobSpec(command=command, working_directory=str(daemons.root))
    spec.resources.gpu_count = gpus
    spec.resources.node_count = nodes
    return spec


def dlq(daemons: Daemons, *arguments: str) -> str:
    """What a command of `dlq` says."""
    done = subprocess.run(
        [BIN / "dlq", *arguments],
        env={"PATH": "/usr/bin:/bin", "DLQ_HOME": str(daemons.root / "home")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(daemons: Daemons) -> dict[str, dict[str, str]]:
    """What the processes have written, by name."""
    whole = (path for path in (daemons.root / "told").iterdir() if path.suffix != ".draft")
    return {path.name: json.loads(path.read_text()) for path in whole}


def end_of(jobs: Jobs, spec: job_pb2.JobSpec) -> tuple[job_pb2.Job, job_pb2.Attempt]:
    job_id = jobs.submit(spec).job.job_id
    wait_until(
        lambda: jobs.get(job_id).job.HasField("end_time"), what="the job ends", timeout_s=90.0
    )
    found = jobs.get(job_id)
    return found.job, found.attempts[-1]


def test_per_gpu_every_gpu_has_a_process_that_knows_its_rank(daemons: Daemons, jobs: Jobs) -> None:
    spec = spec_of(daemons, TELL)
    spec.launch = "per-gpu"
    job, _ = end_of(jobs, spec)
    assert job.state == job_pb2.JOB_STATE_COMPLETED
    found = told(daemons)
    assert sorted(found) == ["0", "1", "2", "3"]
    assert [found[rank]["LOCAL_RANK"] for rank in sorted(found)] == ["0", "1", "0", "1"]
    assert {env["WORLD_SIZE"] for env in found.values()} == {"4"}
    assert {env["LOCAL_WORLD_SIZE"] for env in found.values()} == {"2"}
    assert len({env["MASTER_PORT"] for env in found.values()}) == 1


def test_per_gpu_the_first_that_fails_is_named_and_the_deaf_are_killed(
    daemons: Daemons, jobs: Jobs
) -> None:
    spec = spec_of(daemons, FAIL)
    spec.launch = "per-gpu"
    job, attempt = end_of(jobs, spec)
    assert (job.state, job.exit_code, job.end_reason) == (
        job_pb2.JOB_STATE_FAILED, 7, "user_error",
    )  # fmt: skip
    failed = attempt.ranks[attempt.first_failed_rank]
    assert (failed.node_rank, failed.failed_task, failed.exit_code) == (1, "rank 3", 7)
    assert "no more data" in failed.last_lines
    for command in ("show", "why"):
        said = dlq(daemons, command, job.job_id)
        assert "failed first: node rank 1 (rank 3) on n2: exit 7\n" in said
        assert "  | no more data\n" in said


def test_each_process_has_a_stream_of_its_own(daemons: Daemons, jobs: Jobs) -> None:
    told_by = ("--", sys.executable, "-c", TELL, str(daemons.root / "told"))
    job_id = dlq(
        daemons, "submit", "--parsable", "-N", "2", "--gpus-per-node", "2", "--launch", "per-gpu",
        "-D", str(daemons.root), *told_by,
    ).strip()  # fmt: skip
    wait_until(
        lambda: jobs.get(job_id).job.HasField("end_time"), what="the job ends", timeout_s=90.0
    )
    assert dlq(daemons, "logs", job_id) == "this is 0\n"
    assert dlq(daemons, "logs", "--rank", "3", "-n", "1", job_id) == "this is 3\n"
    every = dlq(daemons, "logs", "--rank", "all", job_id).splitlines()
    assert sorted(line.split("] ")[1] for line in every) == [f"this is {n}" for n in range(4)]


def test_workers_and_servers_know_each_other_and_the_job_is_done_with_its_workers(
    daemons: Daemons, jobs: Jobs
) -> None:
    spec = spec_of(daemons, TELL + SERVE)
    spec.roles.worker_count, spec.roles.ps_count = 4, 2
    job, attempt = end_of(jobs, spec)
    assert job.state == job_pb2.JOB_STATE_COMPLETED, attempt
    assert [rank.exit_code for rank in attempt.ranks] == [0, 0]
    found = told(daemons)
    assert sorted(found) == ["ps0", "ps1", "worker0", "worker1", "worker2", "worker3"]
    clusters = {json.dumps(json.loads(env["TF_CONFIG"])["cluster"]) for env in found.values()}
    (cluster,) = map(json.loads, clusters)
    assert (len(cluster["worker"]), len(cluster["ps"])) == (4, 2)
    ports = {env["DLQ_TASK_PORT"] for env in found.values()}
    assert len(ports) == 6
    assert found["worker0"]["MASTER_PORT"] not in ports
    for name, env in found.items():
        task = json.loads(env["TF_CONFIG"])["task"]
        assert f"{task['type']}{task['index']}" == name
        assert cluster[task["type"]][task["index"]].endswith(f":{env['DLQ_TASK_PORT']}")
    assert {env["DMLC_ROLE"] for env in found.values()} == {"worker", "server"}
    assert {env["DMLC_NUM_WORKER"] for env in found.values()} == {"4"}
    assert found["ps0"]["DLQ_VIRTUAL_DEVICES"] == ""
    gpus = [found[f"worker{index}"]["DLQ_VIRTUAL_DEVICES"] for index in range(4)]
    assert len(set(gpus)) == 4


def test_on_one_node_the_servers_end_with_the_workers_too(daemons: Daemons, jobs: Jobs) -> None:
    spec = spec_of(daemons, TELL + SERVE, gpus=2, nodes=1)
    spec.roles.worker_count, spec.roles.ps_count = 2, 1
    job, attempt = end_of(jobs, spec)
    assert job.state == job_pb2.JOB_STATE_COMPLETED, attempt


def test_a_server_that_fails_while_workers_work_ends_them_all_and_is_named(
    daemons: Daemons, jobs: Jobs
) -> None:
    spec = spec_of(daemons, PS_FAILS)
    spec.roles.worker_count, spec.roles.ps_count = 2, 1
    spec.resources.gpu_count = 2
    job, attempt = end_of(jobs, spec)
    assert (job.state, job.exit_code) == (job_pb2.JOB_STATE_FAILED, 5)
    failed = attempt.ranks[attempt.first_failed_rank]
    assert (failed.failed_task, failed.last_lines[0]) == ("ps 0", "disk full")


@pytest.mark.parametrize("victim", ["n1", "master"])
def test_the_servers_end_though_somebody_restarts_while_they_serve(
    daemons: Daemons, jobs: Jobs, victim: str
) -> None:
    program = (
        TELL
        + SERVE
        + """
while os.environ["DLQ_ROLE_INDEX"] == "0" and not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.05)
"""
    )
    spec = spec_of(daemons, program, gpus=2)
    spec.roles.worker_count, spec.roles.ps_count = 2, 2
    job_id = jobs.submit(spec).job.job_id
    wait_until(lambda: len(told(daemons)) == 4, what="all of them run", timeout_s=60.0)
    daemons.kill(victim)
    (daemons.root / "told" / "go").write_text("{}")
    daemons.start(victim)
    daemons.wait_for(victim)
    wait_until(
        lambda: jobs.get(job_id).job.HasField("end_time"), what="the job ends", timeout_s=90.0
    )
    found = jobs.get(job_id)
    assert found.job.state == job_pb2.JOB_STATE_COMPLETED, found.attempts
    assert len(found.attempts) == 1
