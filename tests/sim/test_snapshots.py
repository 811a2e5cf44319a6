"""A plan made of a snapshot is the plan that would have been made on the spot."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from dlq_master.model.cluster import drive
from dlq_master.model.plan import Plan
from dlq_master.model.view import View
from dlq_master.planner.snapshot import (
    Unreadable,
    dumps,
    loads,
    read,
    read_slices,
    slices,
    take_promises,
)
from dlq_master.planner.told import KeptState, StateTold
from dlq_master.policy.admit.stage import promised
from dlq_master.policy.pipeline import plan
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from support.extent import spread
from support.validate import validate

DATA = Path(__file__).parents[1] / "data" / "traces"
CHOICES = (
    ("fifo",),
    ("yarn-cs",),
    ("srtf", "term_s=60", "save_s=7", "resume_s=5"),
    ("themis", "term_s=60", "save_s=7", "resume_s=5"),
    ("3sigma", "term_s=60", "save_s=7", "resume_s=5"),
    ("aryl",),
    ("tiresias-las", "thresholds=60", "promote_knob=2", "term_s=60", "save_s=7", "resume_s=5"),
    ("tiresias-gittins", "thresholds=60,200", "refresh=2", "term_s=60", "save_s=7"),
    ("tiresias-gittins", "thresholds=q0.4,q0.8", "refresh=3", "term_s=60", "save_s=7"),
    ("srtf", "place=skew", "packlimit=learned", "term_s=60", "save_s=7", "resume_s=5"),
    ("chronus", "term_s=60", "save_s=7", "resume_s=5"),
    ("chronus", "know=profiled", "profile_s=40", "term_s=60", "save_s=7", "resume_s=5"),
)


class Compared(Replay):
    """Before every fifth decision a copy is asked too."""

    compared = 0
    changes = 0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.told, self.kept = StateTold(), KeptState()

    def _decide(self, now_s: float) -> bool:
        self.compared += 1
        if self.compared % 5 == 0:
            view = View(self.cluster, now_s)
            copy, _ = read_slices([*slices(view, self.policy)]).look()
            validate(copy.cluster)
            # The simulator's own policy: it has changed what was built.
            mine, theirs = plan(view, self.policy), plan(copy, self.policy)
            assert theirs == mine
            self.changes += len(mine.changes)
            if self.policy.promises is not None:
                rules, shot = self.policy.promises, take_promises(view, self.policy)
                fewer, _ = read(dumps(shot)).look()
                followed, _ = self.kept.look(self.told.difference(shot))
                validate(followed.cluster)
                said = promised(view, rules)
                assert promised(fewer, rules) == promised(followed, rules) == said
                drive.apply(followed.cluster, Plan(said, now_s, again=True), now_s, 0)
                self.kept.take_back()
        return super()._decide(now_s)


def a_trace() -> Trace:
    """Sixty jobs, every third with a deadline, some elastic, some of one family."""
    jobs = []
    for number, row in enumerate(read_trace(str(DATA / "tiresias_60_job.csv")).jobs):
        due = {"kind": "strict", "deadline_s": 4 * row.duration_s + 300} if number % 3 == 0 else {}
        sizes = {"min_workers": 1, "max_workers": 2 * row.num_gpus} if number % 4 == 1 else {}
        asked = (row.job_id, row.submit_time_s, row.num_gpus, row.duration_s)
        names = dict(zip(("job_id", "submit_time_s", "num_gpus", "duration_s"), asked, strict=True))
        more = {"model": f"m{number % 5}", "skew": (number % 7) / 7, "rho": 0.1}
        jobs.append(TraceJob(**names, **due, **sizes, **more))  # type: ignore[arg-type]  # a builder
    return Trace.of("mixed", jobs)


@pytest.mark.parametrize("choice", spread([(choice,) for choice in CHOICES], 6), ids=" ".join)
def test_a_copy_plans_the_same(choice: tuple[str, ...]) -> None:
    (chosen,) = read_settings(choice[:1], choice[1:])
    run = Compared(a_trace(), ClusterSpec(name="3x4", groups=(NodeGroup(count=3, gpus=4),)), chosen)
    run.run()
    assert run.changes > 0, "nothing was compared"


class Trap:
    """A pickle that calls something."""

    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("called",))


@pytest.mark.parametrize("data", [b"", b"\x80", b"garbage" * 100, pickle.dumps(Trap())])
def test_what_is_not_ours_is_refused_and_not_called(
    data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unreadable):
        loads(data)
    assert capsys.readouterr().out == ""


def test_a_value_of_the_model_is_no_snapshot() -> None:
    with pytest.raises(Unreadable, match="no snapshot"):
        read(dumps(View(None, 0.0)))  # type: ignore[arg-type]  # whatever it holds
