"""Makes the answer to a question. Only the state of the last look is kept between questions."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.planner.answers import answer, estimate_words, forecast_words
from dlq_master.planner.questions import KeptQuestions, Question, changes_of, kept
from dlq_master.policy.policy import Policy
from dlq_simulator.twin.forecast import Worlds, foresee, foresee_one
from dlq_simulator.twin.runtimes import RunTimes
from dlq_simulator.twin.world import close, lose

Found = Mapping[str, Any]
# While it looks ahead for all jobs, a user who asks for one job waits no longer than this.
_ATTENTIVE_S = 0.05


def nobody() -> None:
    """A pause in which no other question comes."""


class Answering:
    """The twin without its pipes."""

    def __init__(self) -> None:
        self._kept: KeptQuestions | None = None
        self._run_times = RunTimes(())

    def answer(self, question: Question, attend: Callable[[], None] = nobody) -> bytes:
        """The answer, or under `none` why there is none. `attend` is called from time to time."""
        if question.do == "look":
            self._kept = kept(question)
            self._run_times = RunTimes(self._kept.past)
        try:
            found = self._found(question, AnswerBudget(question.cpu_s, attend))
        except Exception as error:  # noqa: BLE001 - any bug: of a policy, or ours; nobody is harmed by it
            print(traceback.format_exc(), file=sys.stderr)
            found = {"none": f"{type(error).__name__}: {error}"[:200]}
        return answer(question.number, found)

    def _found(self, question: Question, budget: AnswerBudget) -> Found:
        state = self._kept
        if state is None:
            return {"none": "it has not seen the cluster yet"}
        worlds = Worlds(state.thaw, state.now_s, self._run_times, state.recent)
        if question.do == "look":
            forecast = foresee(worlds, budget.spent)
            return forecast_words(forecast._replace(cpu_s=budget.used_s, ends={}))
        if question.do == "ask":
            job = question.content["job"]
            found = foresee_one(worlds, budget.spent, job)
            return estimate_words(found)
        return _compared(state, worlds, question, budget)


class AnswerBudget:
    """CPU time for one answer; the time for other questions meanwhile does not count."""

    def __init__(self, cpu_s: float, attend: Callable[[], None] = nobody) -> None:
        self._cpu_s = cpu_s
        self._attend = attend
        self._began_s = time.process_time()
        self._attended_s = time.monotonic()

    def half(self) -> AnswerBudget:
        """Half of the budget, from now on."""
        return AnswerBudget(self._cpu_s / 2, self._attend)

    @property
    def used_s(self) -> float:
        return time.process_time() - self._began_s

    def spent(self) -> float:
        """The used share."""
        if time.monotonic() - self._attended_s > _ATTENTIVE_S:
            before_s = time.process_time()
            self._attend()
            self._began_s += time.process_time() - before_s
            self._attended_s = time.monotonic()
        return self.used_s / self._cpu_s


def _compared(
    state: KeptQuestions, worlds: Worlds, question: Question, budget: AnswerBudget
) -> Found:
    changes = changes_of(question)

    def changed() -> tuple[Cluster, Policy]:
        cluster, policy = state.thaw(changes)
        for node in changes.more:
            cluster.put_node(node)
        close(cluster, changes.closed, state.now_s)
        lose(cluster, changes.lost, state.now_s)
        return cluster, policy

    now = foresee(worlds, budget.half().spent)
    then = foresee(worlds._replace(thaw=changed), budget.half().spent, changes.come)
    return {"now": forecast_words(now), "then": forecast_words(then)}
