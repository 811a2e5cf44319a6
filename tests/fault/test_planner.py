"""The planning process dies, hangs, lies or babbles: every question has an answer, and none does
harm.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dlq_master.model.view import View
from dlq_master.planner import code
from dlq_master.planner.plans import Answer
from dlq_master.planner.process import COMMAND, PlannerProcess
from dlq_master.planner.schedules import RENT, read_schedule, write_problem
from dlq_master.planner.snapshot import slices
from dlq_master.policy.registry.renting import build_live
from support.builders import World, a_job
from unit.master.policy.priced.drawing import chance, drawn

PATIENCE_S = 60.0
# What a planner that is no good does with its input and output, in a line of Python.
HANGS = "import time; time.sleep(1000)"
GREETS = (
    "import sys, struct\n"
    "def say(data):\n"
    "    sys.stdout.buffer.write(struct.pack('>I', len(data)) + data); sys.stdout.flush()\n"
    "say(b'{greeting}')\n"
)
DIES = GREETS + "sys.stdin.buffer.read(4)"
BABBLES = (
    "import sys; sys.stdout.buffer.write(b'x' * 100_000); sys.stdout.flush(); sys.stdin.read()"
)
ENDLESS = "import sys; sys.stdout.buffer.write(b'\\xff' * 4); "
ENDLESS += "sys.stdout.flush(); sys.stdin.read()"
A_TRAP = (
    GREETS + "import pickle\n"
    "class Trap:\n"
    "    def __reduce__(self):\n"
    "        return (open, ('{path}', 'w'))\n"
    "say(pickle.dumps(Trap())); sys.stdin.read()\n"
)


class Asked:
    """A planner, and what it has told."""

    def __init__(self, command: tuple[str, ...] = COMMAND, limit_s: float = PATIENCE_S) -> None:
        self.told: asyncio.Queue[Answer] = asyncio.Queue()
        self.failures: list[str] = []
        self.planner = PlannerProcess(
            self.told.put_nowait, limit_s=limit_s, command=command, failed=self.failures.append
        )
        self._number = 0

    def ask(self) -> None:
        world = World("fifo", 1).submit(a_job(1, 4), a_job(2, 8))
        self._number += 1
        self.planner.ask(
            self._number, "plan", lambda _: slices(View(world.cluster, 1.0), world.policy)
        )

    async def answer(self) -> Answer:
        async with asyncio.timeout(2 * PATIENCE_S):
            return await self.told.get()


Asking = Callable[..., Asked]


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    made: list[Asked] = []

    def make(*arguments: object, **more: object) -> Asked:
        made.append(Asked(*arguments, **more))  # type: ignore[arg-type]  # as it takes them
        return made[-1]

    yield make
    for one in made:
        await one.planner.close()


def a_bad_one(words: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", words)


async def test_it_answers_lives_on_and_comes_back_after_being_killed(asking: Asking) -> None:
    asked = asking()
    asked.ask()
    assert not asked.planner.ready
    first = await asked.answer()
    assert [len(plan.changes) for plan in first.plans] == [2, 1]  # two admissions, one start
    pid = asked.planner.facts().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)  # while it waits for the next question
    asked.ask()
    lost = await asked.answer()
    assert (lost.number, lost.plans, lost.fault) == (2, (), "it ended")
    facts = asked.planner.facts()
    assert (facts.failures, facts.starts) == (1, 1)
    assert asked.failures == ["it ended"]
    asked.planner._rest_until_s = 0.0  # its rest is over
    asked.ask()
    assert (await asked.answer()).plans == first.plans
    assert asked.planner.facts().starts == 2


async def test_it_solves_a_program_of_renting_while_the_loop_goes_on(asking: Asking) -> None:
    asked, problem = asking(), drawn(4, 5, 2)
    question = write_problem("gpuaas-milp", {}, problem)
    asked.planner.ask(1, RENT, lambda _: iter([question]))
    turns = 0
    while asked.told.empty():
        await asyncio.sleep(0.001)
        turns += 1
    answer = await asked.answer()
    assert turns > 1
    (plan,) = answer.plans
    made = build_live("gpuaas-milp", {})(problem, chance())
    assert read_schedule(plan, problem.catalogue).grants.keys() == made.grants.keys()


@pytest.mark.parametrize(
    ("words", "limit_s", "why"),
    [
        (DIES, PATIENCE_S, "it ended"),
        ("raise SystemExit(3)", PATIENCE_S, "it ended"),
        (BABBLES, PATIENCE_S, "a frame of"),
        (ENDLESS, PATIENCE_S, "a frame of 4294967295 bytes"),
        (HANGS, 0.3, "longer than 0.3 s"),
    ],
    ids=["dies", "never starts", "babbles", "endless", "hangs"],
)
async def test_one_that_is_no_good_is_ended_and_said_so(
    asking: Asking, words: str, limit_s: float, why: str
) -> None:
    asked = asking(a_bad_one(greeting_with(code.digest(), words)), limit_s)
    asked.ask()
    answer = await asked.answer()
    assert answer.plans == ()
    assert why in answer.fault
    facts = asked.planner.facts()
    assert facts.state == "resting" or not facts.rest_s, "its first rest is short"
    assert (facts.pid, facts.last_failure) == (None, answer.fault)


def greeting_with(digest: str, words: str = GREETS) -> str:
    """A planner that says that it is of this code."""
    return words.replace("{greeting}", code.greeting(digest).decode())


@pytest.mark.parametrize(
    "words",
    [greeting_with("of tomorrow") + "sys.stdin.read()", "import no_such_module"],
    ids=["starts", "does not even start"],
)
async def test_one_of_another_version_is_asked_nothing_and_told_so(
    asking: Asking, words: str
) -> None:
    asked = asking(a_bad_one(words))
    asked.planner._code = "of yesterday"  # the package was upgraded since
    asked.ask()
    fault = (await asked.answer()).fault
    assert fault.endswith("restart the master")
    facts = asked.planner.facts()
    assert (facts.state, facts.outdated, facts.pid, facts.last_failure) == (
        "outdated",
        True,
        None,
        fault,
    )
    assert facts.rest_s > 10.0, "another start would find the same"
    assert asked.failures == [fault]


async def test_one_that_says_something_else_first_is_no_good(asking: Asking) -> None:
    asked = asking(a_bad_one(GREETS.replace("{greeting}", "hello") + "sys.stdin.read()"))
    asked.ask()
    assert "which code it runs" in (await asked.answer()).fault
    assert not asked.planner.facts().outdated


def called_by(root: Path) -> list[Path]:
    """What the trap has made."""
    return list(root.iterdir())


async def test_what_it_sends_is_never_called(asking: Asking, tmp_path: Path) -> None:
    trap = greeting_with(code.digest(), A_TRAP).replace("{path}", str(tmp_path / "called"))
    asked = asking(a_bad_one(trap))
    asked.ask()
    assert "no value of the model" in (await asked.answer()).fault
    assert called_by(tmp_path) == []


async def test_failures_in_a_row_are_followed_by_longer_and_longer_rests(asking: Asking) -> None:
    asked = asking(a_bad_one(greeting_with(code.digest(), DIES)))
    now_s = asyncio.get_running_loop().time
    for rest_s in (1.0, 2.0, 4.0):
        asked.planner._rest_until_s = 0.0
        asked_s = now_s()
        asked.ask()
        await asked.answer()
        assert asked_s <= asked.planner._rest_until_s - rest_s <= now_s()


async def test_a_command_that_is_not_there_is_a_failure_like_any_other(asking: Asking) -> None:
    asked = asking(("/nonexistent/python",))
    asked.ask()
    assert "No such file" in (await asked.answer()).fault


async def test_a_bug_of_a_policy_there_is_told_and_the_process_lives(asking: Asking) -> None:
    asked = asking()
    world = World("fifo", 1)
    good = list(slices(View(world.cluster, 1.0), world.policy))
    asked.planner.ask(1, "plan", lambda _: iter([*good, b"nonsense"]))
    answer = await asked.answer()
    assert "Unreadable" in answer.fault
    assert asked.planner.facts().state == "idle"


async def test_one_that_nobody_asks_for_long_leaves_and_another_one_is_started(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_master.planner.process.IDLE_S", 0.01)
    asked = asking()
    for starts in (1, 2):
        asked.ask()
        assert (await asked.answer()).fault == ""
        assert asked.planner.facts().starts == starts
        async with asyncio.timeout(PATIENCE_S):
            while asked.planner.facts().pid is not None:  # noqa: ASYNC110 nobody tells when it is gone
                await asyncio.sleep(0.01)
    assert asked.planner.ready
    assert asked.failures == []


async def test_closing_one_that_is_leaving_waits_until_it_is_gone(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_master.planner.process.IDLE_S", 0.01)
    asked = asking()
    asked.ask()
    await asked.answer()
    pid = asked.planner.facts().pid
    assert pid is not None
    while asked.planner.facts().pid is not None:  # noqa: ASYNC110 nobody tells when it leaves
        await asyncio.sleep(0)
    await asked.planner.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
