"""The traffic profiler in containers: the libraries and the rings are where the job looks for
them.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import profile_pb2
from dlq_common.text.wire import to_duration
from support.agent_process import AgentProcess
from support.container_cluster import load_host_image
from support.podman_box import PodmanStore, needs_podman, podman_store
from support.ports import free_ports
from support.ring_of_two import BUFFERS
from support.stub_master import StubMaster, launch_command
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, pytest.mark.integration, needs_podman]

USER = 23456
IMAGE = "localhost/dlq-profiled:1"
RING = Path(__file__).parents[1] / "support" / "ring_of_two.py"
PODMAN = """
[podman]
root = "{store.at}/store"
run_root = "{store.run_root}"
oci_runtime = "{store.client.oci_runtime}"
secrets = "{place}/secrets"
run_dir = "{place}/handed"
mount_roots = ["/usr"]
spare = "1MiB"
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        load_host_image(made)
        made.load(made.at / "host-usr", IMAGE, "ENV PYTHONPATH=/of/the/image")
        yield made


@pytest.fixture
def master(store: PodmanStore) -> Iterator[StubMaster]:
    with tempfile.TemporaryDirectory(prefix="dlq-profile-") as name, StubMaster() as stub:
        place = Path(name)
        place.chmod(0o755)
        agent = AgentProcess(place, stub)
        text = agent.config.read_text().replace('run_as = "self"', 'run_as = "submitter"')
        text = text.replace("allow_root = true", 'allow_root = false\nruntime = "podman"')
        more = PODMAN.format(store=store, place=place)
        agent.config.write_text(text + more)
        assert agent.join(stub.token()).returncode == 0
        (agent.state_dir / "users.map").write_text(f"{USER}:{USER}:\n")
        agent.start()
        stub.wait_for(lambda: stub.hellos or None, "a hello")
        yield stub
        wait_until(lambda: not list(agent.state_dir.glob("profiles/*")), what="rings are removed")
        agent.clean_up()


def launch(job: int, script: str, *words: str) -> wire.LaunchCommand:
    """A script in the container, by a Python of the node's /usr."""
    (port,) = free_ports(1)
    made = launch_command(job, *words, script=script, uid=USER, gid=USER, user="someone")
    made.master_port = port
    made.spec.container.image = IMAGE
    made.spec.container.mounts.add(source="/usr", target="/usr", read_only=True)
    made.profile.window_duration.CopyFrom(to_duration(60.0))
    return made


def evidence(master: StubMaster) -> profile_pb2.ProfileEvidence:
    return master.wait_for(lambda: master.evidence[0] if master.evidence else None, "evidence")


def test_a_job_of_two_ranks_in_a_container_tells_its_sizes(master: StubMaster) -> None:
    ring = launch(1, f"#!/usr/bin/python3\n{RING.read_text()}", "30")
    ring.spec.launch = "per-gpu"
    ring.gpu_indexes[:] = [0, 1]
    master.command(ring)
    told = evidence(master)
    assert (told.traffic.reason, told.sizes.reason) == ("", "")
    assert (told.process_count, told.model_bytes) == (2, sum(BUFFERS))
    assert master.report("1", wire.RANK_PHASE_EXITED).exit_code == 0


def test_what_the_image_sets_comes_after_ours_and_is_not_lost(master: StubMaster) -> None:
    script = """#!/usr/bin/python3
import os, sys
print(os.environ["PYTHONPATH"], "/of/the/image" in sys.path, len(os.listdir(os.environ["DLQ_PROF_DIR"])))
"""  # noqa: E501
    master.command(launch(1, script))
    ended = master.report("1", wire.RANK_PHASE_EXITED)
    assert ended.exit_code == 0
    master.command(wire.OpenLogCommand(relay_id="1", job_id="1", fence=ended.fence))
    pieces = master.wait_for(
        lambda: p if (p := master.logs.get("1", [])) and p[-1].end else None, "the log"
    )
    paths, there, files = b"".join(piece.data for piece in pieces).decode().split()
    ours, _, images = paths.partition(":")
    assert os.path.basename(ours) == "hook"
    assert (images, there, files) == ("/of/the/image", "True", "1")
    assert evidence(master).traffic.reason == "nothing-recorded"
