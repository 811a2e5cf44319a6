"""Jobs in containers with a client that stays: a stdin, a terminal, and a client that is killed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess

import pytest

from dlq.v1 import job_pb2
from support.container_cluster import HOST_IMAGE, ContainerCluster, borrowed, borrowing
from support.harness import BIN
from support.podman_box import needs_podman
from support.sessions import Session, interrupt
from support.users_view import UsersView
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.podman, needs_podman]
DEADLINE_S = 180.0
DLQ = str(BIN / "dlq")


@pytest.fixture
def cluster(containers: ContainerCluster) -> ContainerCluster:
    return containers


def dlq(cluster: ContainerCluster, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [DLQ, *words],
        env=os.environ | cluster.client_environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def session(cluster: ContainerCluster, *words: str) -> Session:
    asked = ("run", "-G", "1", *borrowing(), "--pty", "--env", "PS1=$ ", *words)
    return Session(cluster.client_environment, DLQ, *asked)


def ended(user: UsersView, name: str) -> job_pb2.Job:
    jobs = json.loads(user.dlq("status", "-a", "--json"))["jobs"]
    (job_id,) = (job["job_id"] for job in jobs if job["name"] == name)
    found = user.wait_for_end(job_id)
    wait_until(
        lambda: user.show(job_id)["attempts"][-1]["end_time"],
        what="nothing of it is left",
        timeout_s=DEADLINE_S,
    )
    return found


def test_a_container_has_its_clients_stdin_and_terminal_and_ends_with_it(
    user: UsersView, cluster: ContainerCluster
) -> None:
    data = random.Random(5).randbytes(3 << 20)
    with dlq(
        cluster, "run", "-G", "1", *borrowing(), "--", "/bin/sh", "-c", "sha256sum; exit 3"
    ) as piped:
        out, err = piped.communicate(data, DEADLINE_S)
    assert out.split()[:1] == [hashlib.sha256(data).hexdigest().encode()], err
    assert piped.returncode == 3

    shell = session(cluster, "--", "/bin/sh")
    shell.expect("$ ")
    shell.resize(102, 42)
    shell.press("until stty size | grep '42 102'; do sleep 0.1; done; tty\n")
    shell.expect("\n42 102\n/dev/pts/")
    interrupt(shell)
    shell.press("exit 6\n")
    assert shell.end() == 6

    left = session(cluster, "-J", "left", "--", "/bin/sh")
    left.expect("$ ")
    os.kill(left.pid, signal.SIGKILL)
    assert left.end() == -signal.SIGKILL
    assert ended(user, "left").state == job_pb2.JOB_STATE_CANCELLED


@pytest.mark.parametrize("program", ["salloc", "srun"])
def test_an_allocation_in_a_container_ends_when_its_client_is_killed(
    user: UsersView, cluster: ContainerCluster, program: str
) -> None:
    mounts = ",".join(f"{place}:{place}:ro" for place in borrowed())
    image = (f"--container-image={HOST_IMAGE}", f"--container-mounts={mounts}")
    with dlq(
        cluster, "slurm", program, "-G1", "-J", "left", *image, "sh", "-c", "echo up; read x"
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
        client.kill()
    assert ended(user, "left").state in (
        job_pb2.JOB_STATE_CANCELLED, job_pb2.JOB_STATE_FAILED,
    )  # fmt: skip
