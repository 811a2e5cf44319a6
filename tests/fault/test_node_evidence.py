"""What closes a node and what does not, on real daemons: two users with every mistake there is, and
a sick node.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dlq.v1 import job_pb2, resource_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity
from dlq_client.nodes import Nodes
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/attempts/test_control_quarantine.py",
    ),
]

OTHER = "somebody-else"  # no account of the host: everything runs as who runs the agents
SHELL = ("/bin/sh", "-c")
MISTAKES: dict[str, job_pb2.JobSpec] = {
    "exit-1": job_pb2.JobSpec(command=[*SHELL, "exit 1"]),
    "exit-7": job_pb2.JobSpec(command=[*SHELL, "exit 7"]),
    "signal": job_pb2.JobSpec(command=[*SHELL, "kill -SEGV $$"]),
    "output": job_pb2.JobSpec(command=[*SHELL, "head -c 30000000 /dev/zero; exit 1"]),
    "no-directory": job_pb2.JobSpec(command=["true"], working_directory="/no/such/directory"),
    "no-directory-but-a-file": job_pb2.JobSpec(command=["true"], working_directory="/etc/passwd"),
    "no-program": job_pb2.JobSpec(command=["/no/such/program"]),
    "no-program-but-a-file": job_pb2.JobSpec(command=["/etc/passwd"]),
    "no-interpreter": job_pb2.JobSpec(script="#!/no/such/interpreter\n"),
    "kills-its-shim": job_pb2.JobSpec(command=[*SHELL, "kill -9 $PPID; sleep 600"]),
}


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("cluster"), ("n1", "n2")).up() as made:
        yield made


def connected(daemons: Daemons, user: str) -> Connection:
    """As somebody else than who founded the cluster."""
    daemons.said("admin", "user", "set", user, "--uid", "4711", "--gid", "4711")
    state = daemons.root / "master"
    authority = Authority.load((state / "ca.key").read_bytes(), (state / "ca.crt").read_bytes())
    asked = new_key_and_csr(user)
    signed = authority.sign_user(asked.request, user, Role.USER, SteadyClock().now_s())
    founder = load_identity(daemons.root / "home")
    assert founder is not None
    identity = replace(
        founder,
        key=asked.key,
        certificate=signed,
        user=user,
        role=Role.USER.value,
        address=daemons.api,
    )
    return Connection(identity, patience_s=60.0, deadline_s=5.0)


def submit(jobs: Jobs, name: str, spec: job_pb2.JobSpec, node: str) -> str:
    asked = job_pb2.JobSpec()
    asked.CopyFrom(spec)
    asked.name = name
    asked.resources.CopyFrom(resource_pb2.ResourceRequest(gpu_count=1, node_ids=[node]))
    asked.working_directory = spec.working_directory or "/tmp"
    return jobs.submit(asked).job.job_id


def has_ended_once(jobs: Jobs, job_id: str) -> bool:
    attempts = jobs.get(job_id).attempts
    return bool(attempts) and attempts[0].HasField("end_time")


def ends_of(jobs: Jobs, job_ids: Sequence[str]) -> list[str]:
    """How their first attempts ended; they are not tried again."""
    for job_id in job_ids:
        wait_until(partial(has_ended_once, jobs, job_id), what=f"job {job_id} has ended once")
    ends = [jobs.get(job_id).attempts[0].state for job_id in job_ids]
    for job_id in job_ids:
        jobs.cancel(job_id, kill=True)
    return [job_pb2.AttemptState.Name(state).removeprefix("ATTEMPT_STATE_") for state in ends]


def is_closed(line: Connection, node: str) -> bool:
    return "quarantined" in Nodes(line).get(node).flags


def test_no_mistake_of_users_closes_a_node(daemons: Daemons) -> None:
    with daemons.connect() as one, connected(daemons, OTHER) as other:
        for line, who in ((one, "founder"), (other, OTHER)):
            jobs = Jobs(line)
            ids = [submit(jobs, f"{name}-{who}", spec, "n1") for name, spec in MISTAKES.items()]
            ends = dict(zip(MISTAKES, ends_of(jobs, ids), strict=True))
            assert ends.pop("kills-its-shim") == "NODE_LOST"
            assert set(ends.values()) == {"FAILED"}, ends
        assert not is_closed(one, "n1")


def test_a_node_that_cannot_start_jobs_is_closed(daemons: Daemons) -> None:
    """Its agent lives, and the directory where ranks are kept is gone: a disk that was unmounted,
    say.
    """
    attempts: Path = daemons.root / "n2" / "attempts"
    shutil.rmtree(attempts)
    spec = job_pb2.JobSpec(command=["true"])
    with daemons.connect() as line:
        jobs = Jobs(line)
        ids = [submit(jobs, f"good-{number}", spec, "n2") for number in range(3)]
        assert ends_of(jobs, ids) == ["START_FAILED"] * 3
        wait_until(partial(is_closed, line, "n2"), what="n2 is quarantined")
        assert not is_closed(line, "n1")
