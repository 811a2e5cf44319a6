"""A policy with a bug: nothing of its plan is applied, and the master goes on with all the rest."""

from dataclasses import replace

from dlq_master.control.stimuli import ReleaseJob
from dlq_master.model.nodes.free_gpus import Parts, Pool
from dlq_master.model.resources import Shape
from dlq_master.policy.policy import Policy
from support.master_harness import Master
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_nodes import silence


class Bug:
    """A placement that fails, and counts how often it was asked."""

    def __init__(self, master: Master) -> None:
        self.asked = 0
        self.words = "a bug"
        self._sound: Policy = master.state.policy
        self._master = master
        self.set()

    def set(self) -> None:
        """From here on every plan fails."""
        placement = self._sound.placement._replace(find=self._find)
        self._master.state.policy = replace(self._sound, placement=placement)

    def mend(self) -> None:
        """It never happened."""
        self._master.state.policy = self._sound

    def _find(self, _pool: Pool, _shape: Shape) -> Parts | None:
        self.asked += 1
        raise IndexError(self.words)


def faults(master: Master) -> list[str]:
    """What the journal says of plans."""
    return [event.kind for event in master.events() if event.kind.startswith("plan_")]


def test_a_plan_that_fails_starts_nothing_and_stops_nothing(
    master: Master, agent: SimAgent
) -> None:
    first = master.submit(2).job_id
    second = master.submit(2, hold=True).job_id
    bug = Bug(master)
    master.edit(ReleaseJob, second)

    assert master.job(first).live_attempt == 1
    assert master.job(second).live_attempt is None
    assert faults(master) == ["plan_failed"]
    bug.mend()
    master.tick(11.0)
    assert master.job(second).live_attempt == 1


def test_a_fault_that_goes_on_is_journaled_once_and_met_less_and_less_often(
    master: Master, agent: SimAgent
) -> None:
    waiting = master.submit(2, hold=True).job_id
    bug = Bug(master)
    master.edit(ReleaseJob, waiting)
    met = []
    for second in range(400):
        asked = bug.asked
        master.tick(1.0)
        agent.heartbeat()
        if bug.asked > asked:
            met.append(second + 1)

    assert met == [10, 30, 70, 150, 310]
    assert faults(master) == ["plan_failed"]
    bug.mend()
    silence(master, 300.0, agent)
    assert faults(master) == ["plan_failed", "plan_recovered"]
    over = next(event for event in master.events() if event.kind == "plan_recovered")
    assert (over.data["count"], over.cause) == (6, "IndexError: a bug")
    assert master.job(waiting).live_attempt == 1


def test_another_fault_is_journaled_too(master: Master, agent: SimAgent) -> None:
    waiting = master.submit(2, hold=True).job_id
    bug = Bug(master)
    master.edit(ReleaseJob, waiting)
    bug.words = "the same place in other words"
    master.tick(10.0)
    assert len(faults(master)) == 1
    master.state.policy = replace(master.state.policy, placement=None)  # type: ignore[arg-type] # a bug
    silence(master, 20.0, agent)
    assert faults(master) == ["plan_failed", "plan_failed"]


def test_people_are_told_and_may_go_on_working(master: Master, agent: SimAgent) -> None:
    running = master.submit(2).job_id
    waiting = master.submit(1, hold=True).job_id
    bug = Bug(master)
    master.edit(ReleaseJob, waiting)

    assert master.why(waiting).reasons[0].code == "plan_failed"
    assert master.loop.published.wait_code(master.job(waiting), 0.0) == "plan_failed"
    assert "IndexError: a bug" in master.loop.published.freeze_reason()
    late = master.submit(1).job_id
    assert master.cancel(running).state == "cancelled"
    bug.mend()
    master.tick(11.0)
    assert master.loop.published.freeze_reason() == ""
    assert master.job(late).live_attempt == 1


def test_a_started_master_tries_anew(master: Master, agent: SimAgent) -> None:
    waiting = master.submit(2, hold=True).job_id
    Bug(master)
    master.edit(ReleaseJob, waiting)
    master.restart()
    agent.hello()
    assert master.job(waiting).live_attempt == 1, "it has another policy"
