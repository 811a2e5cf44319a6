"""Two real clusters and one user: offers of real twins, one hand-over, cuts and kills."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_broker.handover import HandOver, digest_of
from dlq_broker.records import HandOverFiles
from dlq_client.jobs import Jobs
from dlq_client.line.identity import load_identity, save_identity
from dlq_common.clock import SteadyClock
from support.cli_run import Dlq, Said
from support.cutting_proxy import CuttingProxy
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "integration/test_cli_many.py::test_an_open_hand_over_is_told_settled_and_never_goes_elsewhere"
    ),
]
GPUS = 8  # of the node of each
DLQ = "from dlq_cli.main import main; main()"


class TwoClusters:
    """Clusters a and b, each with a master, a twin and a node of virtual GPUs."""

    def __init__(self, root: Path, clusters: dict[str, Daemons]) -> None:
        self.root, self.clusters = root, clusters
        self.home = root / "me"
        a = load_identity(clusters["a"].root / "home")
        assert a is not None
        save_identity(self.home, a)
        self.list_them({name: one.root / "home" for name, one in clusters.items()})
        self.files = HandOverFiles(self.home / "handovers")

    def list_them(self, homes: dict[str, Path]) -> None:
        tables = [f'[clusters.{name}]\nhome = "{home}"\n' for name, home in homes.items()]
        (self.home / "clusters.toml").write_text("".join(tables))

    def dlq(self, *words: str, patience_s: float = 60.0) -> Said:
        with chdir("/tmp"):
            return Dlq(self.home, self.environment)(*words, patience_s=patience_s)

    def said(self, *words: str) -> str:
        done = self.dlq(*words)
        assert done.code == 0, done.err
        return done.out

    @property
    def environment(self) -> dict[str, str]:
        return self.clusters["a"].environment() | {"DLQ_HOME": str(self.home)}

    def submit(self, name: str, *words: str, gpus: int = 1) -> dict[str, Any]:
        """The hand-over of a job that ends at once, as JSON."""
        given = ("submit", "--to", "any", "--json", "--name", name, "--gpus", str(gpus), *words)
        hand: dict[str, Any] = json.loads(self.said(*given, "--", "echo", name))["handover"]
        return hand

    def jobs(self, name: str) -> list[str]:
        """All jobs of this name at both, by global name."""
        found = []
        for cluster, one in self.clusters.items():
            with one.connect() as line:
                listed = Jobs(line).list(name=name).jobs
                found += [f"{cluster}:{job.job_id}" for job in listed]
        return found

    def site(self, cluster: str) -> str:
        """As the command line names it."""
        home = self.clusters[cluster].root / "home"
        identity = load_identity(home)
        assert identity is not None
        return f"{identity.user}@{identity.cluster} in {home}"

    def fill(self, cluster: str) -> str:
        """A job takes all GPUs of it for hours."""
        given = ("--gpus", str(GPUS), "-t", "10:00:00", "--work", "9h", "--parsable")
        job = self.clusters[cluster].said("submit", *given, "--", "sleep", "36000").strip()
        wait_until(lambda: "running" in self.clusters[cluster].said("status", job), what="it runs")
        return job


@pytest.fixture(scope="module")
def two() -> Iterator[TwoClusters]:
    root = Path(tempfile.mkdtemp(prefix="dlqmany", dir="/tmp"))
    try:
        with ExitStack() as stack:
            clusters = {}
            for name in ("a", "b"):
                (root / name).mkdir()
                made = Daemons(root / name, ("n1",), twin=True)
                clusters[name] = stack.enter_context(made.up())
            yield TwoClusters(root, clusters)
    finally:
        shutil.rmtree(root)


def test_the_free_cluster_gets_the_job_and_its_global_name_is_good_everywhere(
    two: TwoClusters,
) -> None:
    full = two.fill("a")
    hand = two.submit("free", "--work", "10m", "--within", "50s")
    assert hand["cluster"] == "b"
    assert [one["state"] for one in hand["offers"]] == ["offered", "offered"]
    name = hand["global_name"]
    assert name in two.jobs("free")
    two.said("wait", name)
    assert two.said("logs", name) == "free\n"
    assert "free" in two.said("status", name)
    assert "has ended" in two.said("why", name)
    assert json.loads(two.said("cancel", "--json", name))["jobs"][0]["state"] == "completed"
    two.said("cancel", "--kill", "--wait", f"a:{full}")


def test_a_waiting_job_moves_to_the_free_cluster_and_ends_there(two: TwoClusters) -> None:
    full = two.fill("a")
    given = ("--name", "moved", "--gpus", "1", "--work", "10m", "--parsable")
    waits = two.clusters["a"].said("submit", *given, "--", "echo", "moved").strip()
    assert two.dlq("move", f"a:{full}").code == 1  # it runs
    said = two.said("move", f"a:{waits}", "--within", "50s", "--parsable").strip()
    assert said.startswith("b:")
    two.said("wait", said)
    assert two.said("logs", said) == "moved\n"
    assert "cancelled" in two.said("status", f"a:{waits}")
    two.said("cancel", "--kill", "--wait", f"a:{full}")


def test_a_cluster_that_is_cut_off_is_silent_and_the_other_one_gets_the_job(
    two: TwoClusters,
) -> None:
    two.clusters["b"].freeze("master")
    try:
        hand = two.submit("cut", "--within", "5s")
    finally:
        two.clusters["b"].thaw("master")
    states = {one["cluster"]: one["state"] for one in hand["offers"]}
    assert states["b"] == "silent"
    assert hand["cluster"] == "a"
    assert two.jobs("cut") == [hand["global_name"]]


def test_a_master_that_stands_still_keeps_the_hand_over_until_it_answers(
    two: TwoClusters,
) -> None:
    spec = job_pb2.JobSpec(name="still", command=["true"], working_directory="/tmp")
    spec.resources.gpu_count = 1
    content = spec.SerializeToString(deterministic=True)
    hand = HandOver(
        number="still", made_s=SteadyClock().now_s(), name="still", digest=digest_of(content),
        spec=content, order=("b", "a"), sites=(two.site("b"), two.site("a")),
    )  # fmt: skip
    two.files.write(hand)  # as after a kill before the first message
    two.clusters["b"].freeze("master")
    try:
        said = two.dlq("handovers", "--settle", patience_s=1.0)
        assert said.code == 69
        assert "cluster b may have the job" in said.err
        assert two.clusters["a"].said("status", "-q", "--search", "still") == ""
    finally:
        two.clusters["b"].thaw("master")
    settled = json.loads(two.said("handovers", "--settle", "--json"))["handovers"]
    assert [one["global_name"] for one in settled] == two.jobs("still")
    assert settled[0]["cluster"] == "b"


def test_a_command_that_is_killed_at_any_moment_leaves_one_job_or_none(two: TwoClusters) -> None:
    """The same command again under the same key: in the end there is one job of each name."""
    for number in range(10):
        name = f"killed{number}"
        words = ["submit", "--to", "any", "--request-id", name, "--name", name, "--gpus", "1"]
        command = [sys.executable, "-P", "-c", DLQ, *words, "--", "true"]
        process = subprocess.Popen(
            command, env=two.environment, cwd="/tmp",
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            process.wait(timeout=0.3 + 0.15 * number)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        before = two.jobs(name)
        assert len(before) <= 1
        after = two.said(*words, "--parsable", "--", "true").strip()
        assert two.jobs(name) == [after]
        assert before in ([], [after])


def test_lost_replies_make_no_second_job(two: TwoClusters) -> None:
    proxy = CuttingProxy(two.clusters["b"].api, share=0.15, seed=26)
    identity = load_identity(two.clusters["b"].root / "home")
    assert identity is not None
    save_identity(two.root / "cut", replace(identity, address=proxy.address))
    two.list_them({"b": two.root / "cut"})
    with proxy.running():
        placed = []
        for number in range(20):
            said = two.dlq("submit", "--to", "b", "--name", f"lost{number}", "--", "true")
            placed.append(said.code == 0)
        two.said("handovers", "--settle")
    assert proxy.cuts > 0
    assert not any(hand.is_open for hand in two.files.all())
    for number, sure in enumerate(placed):
        count = len(two.jobs(f"lost{number}"))
        assert count <= 1
        assert count == 1 or not sure
    two.list_them({name: one.root / "home" for name, one in two.clusters.items()})
