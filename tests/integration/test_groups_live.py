"""A group of real processes on two nodes: they find each other, and end together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlq
from support.harness import BRIEF_SILENCE_S, Daemons
from support.waiting import wait_until

pytestmark = pytest.mark.integration

# Listens at its own port until both actors have spoken, and ends with 0.
LEARNER = """\
import os, socket
own = os.environ["DLQ_GROUP_ADDRESSES_LEARNER"]
server = socket.create_server(("", int(own.rpartition(":")[2])))
seen = set()
while len(seen) < 2:
    line, _ = server.accept()
    seen.add(line.makefile().readline().strip())
print(sorted(seen), os.environ["DLQ_GROUP_MEMBER"], os.environ["DLQ_GROUP_MEMBERS"], flush=True)
"""
# Tells the learner its number, and goes on until it is stopped.
ACTOR = """\
import os, socket, time
host, _, port = os.environ["DLQ_GROUP_ADDRESSES_LEARNER"].rpartition(":")
while True:
    try:
        with socket.create_connection((host, int(port)), timeout=5) as line:
            line.sendall(os.environ["DLQ_GROUP_INDEX"].encode() + b"\\n")
        break
    except OSError:
        time.sleep(0.05)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    root = tmp_path_factory.mktemp("groups")
    with Daemons(root, ("n1", "n2"), silence_s=BRIEF_SILENCE_S).up() as running:
        yield running


@pytest.fixture
def cluster(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dlq.Cluster]:
    for name, value in daemons.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with dlq.connect(patience=60.0) as line:
        yield line


def asked(learner: str = LEARNER, actor: str = ACTOR) -> dict[str, object]:
    return {
        "resources": {"gpus_total": 1},
        "members": {
            "learner": {"command": ["python3", "-c", learner], "ends": "all"},
            "actor": {"command": ["python3", "-c", actor], "count": 2},
        },
    }


def test_members_find_each_other_and_end_with_the_learner(
    daemons: Daemons, cluster: dlq.Cluster
) -> None:
    group = cluster.submit_group(asked(), request_id="once")
    assert cluster.submit_group(asked(), request_id="once").id == group.id
    assert group.result(timeout=120.0) == [0]
    (learner,) = group.member("learner")
    text = "".join(learner.logs())
    assert "['0', '1'] learner learner:1,actor:2" in text
    assert [job.state for job in group.member("actor")] == ["cancelled", "cancelled"]
    facts = json.loads(daemons.said("show", "--json", f"{group.id}_actor.0"))
    told = facts["jobs"][0]
    assert (told["group_member"], told["group_ends"], told["attempt_count"]) == ("actor", "each", 1)
    assert daemons.dlq("wait", group.id).code == 0
    named = [f"{group.id}+{at}" for at in range(3)]
    lines = daemons.said("slurm", "sacct", "-nXo", "jobid,state", "-j", group.id).splitlines()
    assert [line.split()[:2] for line in lines] == [
        [name, state]
        for name, state in zip(named, ["COMPLETED", "CANCELLED", "CANCELLED"], strict=True)
    ]


def test_a_master_that_dies_between_the_starts_of_two_members(
    daemons: Daemons, cluster: dlq.Cluster, tmp_path: Path
) -> None:
    daemons.freeze("n2")
    path = tmp_path / "group.toml"
    path.write_text(
        "resources.gpus_total = 8\n"
        "[members.learner]\ncommand = 'sleep 600'\nends = 'all'\n"
        "[members.actor]\ncommand = 'sleep 600'\n"
    )
    group_id = daemons.said("submit", "--parsable", "--group", str(path)).strip()
    group = cluster.array(group_id)
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    daemons.thaw("n2")
    wait_until(lambda: {job.state for job in group} == {"running"}, what="all run", timeout_s=90.0)
    assert {job.facts["attempt_count"] for job in group} == {1}
    listed = daemons.said("slurm", "squeue", "-h", "-S", "i", "-o", "%i %t").split("\n")
    assert listed[:2] == [f"{group_id}+0 R", f"{group_id}+1 R"]
    assert daemons.dlq("cancel", f"{group_id}_actor").code == 0
    wait_until(
        lambda: {job.state for job in group} == {"cancelled"}, what="all ended", timeout_s=60.0
    )
