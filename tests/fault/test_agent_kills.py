"""kill -9 of the agent at any moment, with jobs starting and ending just then.

Each job writes its start and its end into a ledger under flock; the ledger is the judge. An agent
may die after it has taken a launch and before the shim has it. The next agent tells that this
attempt never started, and the job is launched again, as the master does.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import agent_service_pb2 as wire
from support.agent_process import AgentProcess
from support.proofs import proved
from support.stub_master import StubMaster, launch_command

pytestmark = pytest.mark.long(
    "integration/test_agent_process.py",
    "unit/nodeagent/test_core_restarts.py",
)

FAILED = wire.RANK_PHASE_START_FAILED
ENDED = (wire.RANK_PHASE_EXITED, FAILED)
PROGRAM = """
import fcntl, os, sys, time
def note(word):
    with open(sys.argv[1], "a") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        ledger.write(f"{os.environ['DLQ_JOB_ID']} {word}\\n")
note("start")
time.sleep(float(sys.argv[2]))
note("end")
sys.exit(int(os.environ["DLQ_JOB_ID"]) % 100)
"""


class Fleet:
    """Jobs that the stub master wants, and what has become of them."""

    def __init__(self, master: StubMaster, ledger: Path, rng: random.Random) -> None:
        self.master = master
        self.ledger = ledger
        self.rng = rng
        self.launched: dict[int, int] = {}  # the newest attempt of each job

    def launch(self) -> None:
        """One more job, by command; and by every welcome until its end has been told."""
        self._launch(len(self.launched) + 1, 1)

    def launch_again(self) -> int:
        """Launch jobs whose newest attempt never started; how many they are."""
        failed = [job for job, report in self.ends().items() if report.phase == FAILED]
        self.forget_ended()
        for job in failed:
            self._launch(job, self.launched[job] + 1)
        return len(failed)

    def _launch(self, job: int, attempt: int) -> None:
        self.launched[job] = attempt
        words = (sys.executable, "-c", PROGRAM, str(self.ledger), str(self.rng.uniform(0.0, 1.5)))
        command = launch_command(job, *words, attempt=attempt)
        with self.master.changed:
            self.master.wanted.append(command)
        self.master.command(command)

    def wait_for_hello(self, count: int) -> None:
        """The agent of that life has said hello."""
        hellos = self.master.hellos
        self.master.wait_for(lambda: len(hellos) >= count or None, f"hello {count}")

    def ends(self) -> dict[int, wire.RankReport]:
        """The report of each job whose newest attempt has ended."""
        told = [(int(it.job_id), it) for it in self.master.reports if it.phase in ENDED]
        return {job: it for job, it in told if it.fence.attempt == self.launched[job]}

    def forget_ended(self) -> None:
        """What has ended is not wanted any more."""
        ended = self.ends().keys()
        with self.master.changed:
            wanted = self.master.wanted
            self.master.wanted = [it for it in wanted if int(it.job_id) not in ended]


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Fleet, AgentProcess]]:
    with StubMaster() as master:
        agent = AgentProcess(tmp_path, master)
        assert agent.join(master.token()).returncode == 0
        yield Fleet(master, tmp_path / "ledger", random.Random(7)), agent
        agent.clean_up()


def run_with_kills(fleet: Fleet, agent: AgentProcess, kills: int) -> None:
    """Kill the agent that often, at random moments, with three new jobs in each of its lives."""
    for life in range(kills + 1):
        agent.start()
        fleet.wait_for_hello(life + 1)
        for _ in range(3):
            fleet.launch()
            time.sleep(fleet.rng.uniform(0.0, 0.1))
        if life < kills:
            time.sleep(fleet.rng.uniform(0.0, 0.6))
            agent.kill()
            time.sleep(fleet.rng.uniform(0.0, 0.5))
            fleet.launch_again()
    everything = set(fleet.launched)
    fleet.master.wait_for(lambda: fleet.ends().keys() >= everything or None, "every end")
    while fleet.launch_again():
        fleet.master.wait_for(lambda: fleet.ends().keys() >= everything or None, "every end")
    assert agent.stop() == 0


def check_ledger(fleet: Fleet) -> None:
    """Every job ran exactly once, to its end, and its own exit code was told."""
    lines = Counter(fleet.ledger.read_text().splitlines())
    expected = Counter(f"{job} {word}" for job in fleet.launched for word in ("start", "end"))
    assert lines == expected
    codes = {job: report.exit_code for job, report in fleet.ends().items()}
    assert codes == {job: job % 100 for job in fleet.launched}


@pytest.mark.integration
def test_a_few_kills_lose_no_job_and_start_none_twice(fleet: tuple[Fleet, AgentProcess]) -> None:
    run_with_kills(*fleet, kills=4)
    check_ledger(fleet[0])


@pytest.mark.torture
def test_many_kills_lose_no_job_and_start_none_twice(fleet: tuple[Fleet, AgentProcess]) -> None:
    kills = int(os.environ.get("N", "30"))
    run_with_kills(*fleet, kills=kills)
    check_ledger(fleet[0])
    again = sum(attempt - 1 for attempt in fleet[0].launched.values())
    jobs = len(fleet[0].launched)
    proved("kills of one agent", kills_of_agents=kills, jobs=jobs, launched_again=again)
