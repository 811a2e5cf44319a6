"""A node that is cut off, in every way a wire can break: nothing runs twice, and all is well
again.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_pb2, node_pb2
from dlq_client.jobs import Jobs
from dlq_client.nodes import Nodes
from dlq_common.clock import SteadyClock
from support.netns_daemons import Cut, NetnsDaemons, why_no_netns
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.netns]

# From the moment a wire is whole until the node does its work, without anybody's help.
RECOVERY_S = 30.0
LONG_S = 300.0  # a job that does not end by itself while it is looked at
SUSPECT, UNREACHABLE = node_pb2.NODE_STATE_SUSPECT, node_pb2.NODE_STATE_UNREACHABLE
UP = node_pb2.NODE_STATE_UP


class Scene:
    """One job that runs on a node which is about to be cut off; the last one, if it has several."""

    def __init__(self, daemons: NetnsDaemons, jobs: Jobs, nodes: Nodes, width: int) -> None:
        self.daemons = daemons
        self.jobs = jobs
        self._nodes = nodes
        self._clock = SteadyClock()
        self.job_id = jobs.submit(daemons.ledger_job(LONG_S, 0, nodes=width)).job.job_id
        wait_until(lambda: len(self.facts("start")) == width, what="it runs")
        *_, self.node = wait_until(lambda: jobs.get(self.job_id).job.node_ids, what="its node")

    def facts(self, what: str) -> list[dict[str, Any]]:
        """What the job itself has written down."""
        path = self.daemons.root / "ledger"
        lines = path.read_text().splitlines() if path.exists() else []
        return [fact for fact in map(json.loads, lines) if fact["what"] == what]

    def wait_for_node(self, *states: int, timeout_s: float = 60.0) -> None:
        """Until the master says so of the node."""
        wait_until(
            lambda: self._node_state() in states,
            what=f"{self.node} is in one of the states {states}",
            timeout_s=timeout_s,
        )

    def wait_for_recovery(self) -> None:
        """Until the node is up again, by itself and soon."""
        began_s = self._clock.boottime_s()
        self.wait_for_node(UP, timeout_s=RECOVERY_S)
        took_s = self._clock.boottime_s() - began_s
        print(f"up again after {took_s:.1f} s")  # noqa: T201 - a figure of the run

    def wait_for_attempt(self, state: int, timeout_s: float = 30.0) -> None:
        """Until the master says so of the job's attempt."""
        wait_until(
            lambda: self.jobs.get(self.job_id).job.attempt_state == state,
            what=f"the attempt is in state {state}",
            timeout_s=timeout_s,
        )

    def cut_for_long(self, how: Cut) -> None:
        """Until the master has given the node up as unreachable; its view on the way is as it
        should.
        """
        self.daemons.cut(self.node, how)
        self.wait_for_node(SUSPECT)
        assert self.jobs.get(self.job_id).job.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING
        self.wait_for_node(UNREACHABLE)
        self.wait_for_attempt(job_pb2.ATTEMPT_STATE_UNKNOWN)

    def end(self) -> job_pb2.Job:
        """Cancel it: the word reaches the node, and the job is gone."""
        self.jobs.cancel(self.job_id, kill=True)
        job = wait_until(self._ended, what="it ends")
        assert job is not None
        return job

    def _ended(self) -> job_pb2.Job | None:
        found = self.jobs.get(self.job_id)
        gone = found.job.HasField("end_time") and found.attempts[-1].HasField("end_time")
        return found.job if gone else None

    def _node_state(self) -> int:
        return next(node.state for node in self._nodes.list() if node.node_id == self.node)


@contextmanager
def scene(root: Path, *, hold_s: int, width: int = 1) -> Iterator[Scene]:
    lacking = why_no_netns()
    if lacking:
        pytest.skip(lacking)
    daemons = NetnsDaemons(root, hold_s=hold_s)
    with daemons.up(), daemons.connect() as line:
        yield Scene(daemons, Jobs(line), Nodes(line), width)


@pytest.mark.parametrize("how", list(Cut))
def test_a_node_that_was_cut_off_goes_on_with_the_same_attempt_when_its_wire_is_whole(
    tmp_path: Path, how: Cut
) -> None:
    with scene(tmp_path, hold_s=300) as it:
        it.cut_for_long(how)
        it.daemons.heal(it.node)
        it.wait_for_recovery()
        it.wait_for_attempt(job_pb2.ATTEMPT_STATE_RUNNING)
        ended = it.end()
        assert ended.state == job_pb2.JOB_STATE_CANCELLED
        assert len(it.jobs.get(it.job_id).attempts) == 1
        assert len(it.facts("start")) == 1
        assert it.facts("overlap") == []
        # It is a node like any other again, and its agent has not been restarted by anybody.
        again = it.jobs.submit(it.daemons.ledger_job(0.1, 0, nodes=2)).job.job_id
        wait_until(lambda: it.jobs.get(again).job.HasField("end_time"), what="both nodes work")
        assert it.jobs.get(again).job.state == job_pb2.JOB_STATE_COMPLETED


@pytest.mark.parametrize("how", list(Cut))
def test_a_wire_that_comes_and_goes_disturbs_no_job(tmp_path: Path, how: Cut) -> None:
    with scene(tmp_path, hold_s=300) as it:
        pause = SteadyClock()
        for round_ in range(12):
            it.daemons.cut(it.node, how)
            wait_for_seconds(pause, 0.4 + 0.3 * (round_ % 4))
            it.daemons.heal(it.node)
            wait_for_seconds(pause, 0.2 + 0.3 * (round_ % 3))
        it.wait_for_recovery()
        it.wait_for_attempt(job_pb2.ATTEMPT_STATE_RUNNING)
        it.end()
        assert len(it.jobs.get(it.job_id).attempts) == 1
        assert len(it.facts("start")) == 1
        assert it.facts("overlap") == []


@pytest.mark.parametrize("agent_dies", [False, True], ids=["agent_lives", "agent_dies"])
@pytest.mark.parametrize("how", list(Cut))
def test_a_job_cut_off_for_longer_than_its_hold_is_ended_by_its_shim_and_only_then_runs_elsewhere(
    tmp_path: Path, how: Cut, *, agent_dies: bool
) -> None:
    hold_s = 14
    clock = SteadyClock()
    with scene(tmp_path, hold_s=hold_s) as it:
        cut_s = clock.boottime_s()
        it.daemons.cut(it.node, how)
        if agent_dies:
            it.daemons.kill(it.node)
        wait_until(lambda: len(it.facts("start")) == 2, what="it runs elsewhere", timeout_s=90.0)
        it.wait_for_node(node_pb2.NODE_STATE_DOWN)
        it.daemons.heal(it.node)
        if agent_dies:
            it.daemons.start(it.node)
        it.wait_for_recovery()
        it.end()
        attempts = it.jobs.get(it.job_id).attempts
        first, second = it.facts("start")

    assert [attempt.state for attempt in attempts] == [
        job_pb2.ATTEMPT_STATE_NODE_LOST, job_pb2.ATTEMPT_STATE_CANCELLED,
    ]  # fmt: skip
    assert (first["attempt"], second["attempt"]) == ("1", "2")
    last_s = max(fact["boottime_s"] for fact in it.facts("alive") if fact["attempt"] == "1")
    assert it.facts("overlap") == []
    assert last_s < second["boottime_s"]
    assert second["boottime_s"] >= cut_s + hold_s - 1.0, "requeued before its hold was over"
    if how is not Cut.DEAF:  # what it says still arrives for a while: its contact ends later
        assert last_s <= cut_s + hold_s


@pytest.mark.parametrize("how", [Cut.DEAF, Cut.MUTE])
def test_a_gang_with_a_rank_on_either_side_of_a_cut_is_left_alone_and_goes_on(
    tmp_path: Path, how: Cut
) -> None:
    with scene(tmp_path, hold_s=300, width=2) as it:
        it.cut_for_long(how)
        heard = len(alive(it, "1", rank="0"))
        it.daemons.heal(it.node)
        it.wait_for_recovery()
        it.wait_for_attempt(job_pb2.ATTEMPT_STATE_RUNNING, timeout_s=1.0)
        wait_until(lambda: len(alive(it, "1", rank="0")) > heard, what="the near rank goes on")
        assert it.end().state == job_pb2.JOB_STATE_CANCELLED
        assert len(it.jobs.get(it.job_id).attempts) == 1
        assert sorted(fact["rank"] for fact in it.facts("start")) == ["0", "1"]
        assert it.facts("overlap") == []


def test_a_gang_whose_far_rank_is_cut_off_for_longer_than_its_hold_runs_again_as_a_whole(
    tmp_path: Path,
) -> None:
    """It needs both nodes, so it waits until the wire is whole; then it starts by itself."""
    clock = SteadyClock()
    with scene(tmp_path, hold_s=14, width=2) as it:
        it.daemons.cut(it.node, Cut.MUTE)
        it.wait_for_node(node_pb2.NODE_STATE_DOWN, timeout_s=90.0)
        assert len(it.facts("start")) == 2, "nothing of it runs again on the near side alone"
        it.daemons.heal(it.node)
        healed_s = clock.boottime_s()
        wait_until(
            lambda: len(it.facts("start")) == 4, what="both ranks run again", timeout_s=RECOVERY_S
        )
        print(f"runs again after {clock.boottime_s() - healed_s:.1f} s")  # noqa: T201 - a figure
        it.end()
        attempts = it.jobs.get(it.job_id).attempts
        last_s = max(fact["boottime_s"] for rank in "01" for fact in alive(it, "1", rank=rank))
        again_s = min(it_["boottime_s"] for it_ in it.facts("start") if it_["attempt"] == "2")

    assert [attempt.state for attempt in attempts] == [
        job_pb2.ATTEMPT_STATE_NODE_LOST, job_pb2.ATTEMPT_STATE_CANCELLED,
    ]  # fmt: skip
    assert it.facts("overlap") == []
    assert last_s < again_s, "no rank of the second attempt beside any of the first"


def alive(it: Scene, attempt: str, *, rank: str) -> list[dict[str, Any]]:
    """What a rank of an attempt has written while it lived."""
    facts = it.facts("alive")
    return [fact for fact in facts if (fact["attempt"], fact["rank"]) == (attempt, rank)]


def wait_for_seconds(clock: SteadyClock, seconds: float) -> None:
    """Let the fault last."""
    end_s = clock.boottime_s() + seconds
    wait_until(lambda: clock.boottime_s() >= end_s, what="time passes")
