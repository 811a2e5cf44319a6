"""Two real clusters and one user: offers of real twins, one hand-over, cuts and kills."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dlq.v1 import job_pb2
from dlq_broker.handover import HandOver, digest_of
from dlq_client.line.identity import load_identity, save_identity
from dlq_common.clock import SteadyClock
from support.cutting_proxy import CuttingProxy
from support.harness import Daemons
from support.two_clusters import GPUS, TwoClusters, two_clusters
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "integration/test_cli_many.py::test_an_open_hand_over_is_told_settled_and_never_goes_elsewhere"
    ),
]
DLQ = "from dlq_cli.main import main; main()"


@pytest.fixture(scope="module")
def two() -> Iterator[TwoClusters]:
    with two_clusters(dict.fromkeys("ab", lambda root: Daemons(root, ("n1",), twin=True))) as two:
        yield two


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


def test_a_running_job_moves_and_goes_on_from_its_step(two: TwoClusters) -> None:
    until = two.root / "moved.stop"
    job = two.clusters["a"].said(*two.saving("steps", until)).strip()
    assert two.begun(f"a:{job}") == 0
    said = two.said("move", f"a:{job}", "--anyway", "--within", "50s", "--parsable").strip()
    assert said.startswith("b:")
    step = two.begun(said)
    assert step > 0
    saved = two.said("logs", f"a:{job}").partition("saved after step ")[2]
    assert int(saved.split()[0]) == step
    until.touch()
    two.said("wait", said)
    assert said in two.jobs("steps")
    assert "cancelled" in two.said("status", f"a:{job}")


def test_a_cluster_whose_nodes_are_all_reserved_is_emptied_into_the_other_one(
    two: TwoClusters,
) -> None:
    """Running jobs save and wait, and their users' rounds move them on. Afterwards it is back."""
    until = two.root / "emptied.stop"
    a = two.clusters["a"]
    runs = a.said(*two.saving("emptied", until)).strip()
    two.begun(f"a:{runs}")
    given = ("--name", "waits", "--gpus", str(GPUS), "--work", "10m", "--parsable")
    waits = a.said("submit", *given, "--", "echo", "waits").strip()
    told = json.loads(a.said("admin", "reserve", "--all", "--for", "10h", "-y", "--json"))
    wait_until(lambda: "queued" in a.said("status", runs), what="it has saved")
    moved = "".join(two.said("move", "--all", "--within", "50s") for _ in range(2))
    names = {line.split()[1]: line.split()[3] for line in moved.splitlines()}
    assert set(names) == {f"a:{runs}", f"a:{waits}"}
    assert two.begun(names[f"a:{runs}"]) > 0
    assert two.submit("elsewhere", "--work", "10m", "--within", "50s")["cluster"] == "b"
    until.touch()
    two.said("wait", names[f"a:{runs}"])
    a.said("admin", "reservation", "cancel", told["reservations"][0]["reservation_id"], "-y")
    two.said("wait", names[f"a:{waits}"])


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
