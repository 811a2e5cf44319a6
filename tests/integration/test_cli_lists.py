"""`dlq status` of the first jobs in an order, and of jobs found by words: the master chooses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import resource_pb2
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import a_job

pytestmark = pytest.mark.integration


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    """Ten queued jobs of one to ten GPUs, named a and b in turn."""
    running = FakeMaster()
    for number in range(1, 11):
        request = resource_pb2.ResourceRequest(gpu_count=number)
        running.jobs[str(number)] = a_job(
            number, "queued", name="train-" + "ab"[number % 2], resources=request
        )
    yield running
    running.stop()


@pytest.fixture
def dlq(master: FakeMaster, tmp_path: Path) -> Dlq:
    return Dlq(master.home(tmp_path))


def test_the_first_jobs_come_in_the_order_of_the_master(dlq: Dlq, master: FakeMaster) -> None:
    said = dlq("status", "--limit", "3", "--sort", "-gpus", "-q")
    assert (said.code, said.out.split()) == (0, ["10", "9", "8"])
    assert "3 of 10 jobs are shown" in said.err
    asked = [request for name, _, request in master.asked if name == "ListJobs"][-1]
    assert (asked.page_size, asked.order, asked.with_total) == (3, "-gpus", True)


def test_json_tells_the_total_with_and_without_a_limit(dlq: Dlq) -> None:
    told = json.loads(dlq("status", "--limit", "2", "--search", "train-a", "--json").out)
    assert ([job["job_id"] for job in told["jobs"]], told["total"]) == (["2", "4"], 5)
    assert json.loads(dlq("status", "--json").out)["total"] == 10


def test_what_fits_into_the_limit_is_told_without_a_count(dlq: Dlq) -> None:
    said = dlq("status", "--limit", "10")
    assert (said.code, said.err) == (0, "")
    said = dlq("status", "--search", "nothing")
    assert (said.code, said.err.strip()) == (0, "dlq: no job fits")


def test_words_team_and_node_are_for_the_master(dlq: Dlq, master: FakeMaster) -> None:
    dlq("status", "--search", "train-b", "--team", "vision", "--node", "gpu01")
    asked = [request for name, _, request in master.asked if name == "ListJobs"][-1]
    assert (asked.text, asked.team, asked.node_id) == ("train-b", "vision", "gpu01")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--limit", "3", "--sort", "state"), "columns: id, submit, end, user, gpus"),
        (("--limit", "3", "--sort", "gpus,id"), "columns"),
        (("--limit", "3", "-w"), "watch -n 5"),
        (("--search", "x", "-w"), "watch -n 5"),
    ],
)
def test_what_does_not_go_together_is_refused(dlq: Dlq, words: tuple[str, ...], hint: str) -> None:
    said = dlq("status", *words)
    assert said.code == 2
    assert hint in said.err


def test_a_master_of_a_former_release_is_not_believed(dlq: Dlq, master: FakeMaster) -> None:
    master.knows_lists = False
    said = dlq("status", "--search", "train-a")
    assert (said.code, said.out) == (2, "")
    assert "former release" in said.err
    assert len(dlq("status", "-q").out.split()) == 10


def test_the_master_chooses_nodes_unless_it_is_of_a_former_release(
    dlq: Dlq, master: FakeMaster
) -> None:
    chosen = ("nodes", "-t", "suspect,DOWN", "--flag", "draining", "--type", "x", "--search", "a b")
    assert dlq(*chosen).code == 0
    (asked,) = master.requests("ListNodes")
    assert (list(asked.states), list(asked.flags)) == (["suspect", "down"], ["draining"])
    assert (asked.gpu_type, asked.text, asked.with_total) == ("x", "a b", True)
    both = dlq("nodes", "gpu01", "-t", "up")
    assert (both.code, both.out) == (2, "")
    master.knows_lists = False
    refused = dlq(*chosen)
    assert (refused.code, refused.out) == (2, "")
    assert "former release" in refused.err
    assert dlq("nodes").code == 0
