"""Policies by name, and what they say about settings they do not have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlq_master.model.order.order import Discipline
from dlq_master.policy.registry.presets import PRESETS
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_master.policy.transit.taking import Taking

# Where a preset places otherwise if it is not told.
OWN_PLACES = {
    "aryl": "groups",
    "chronus": "pattern",
    "chronus-paper": "local-search",
    "dlq": "skew-groups",
}


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_can_be_built_without_settings(name: str) -> None:
    policy = build(name)
    place = OWN_PLACES.get(name, "consolidate")
    assert (policy.name, policy.placement.name, policy.grid) == (name, place, True)


def test_the_pipeline_comes_without_numerical_libraries() -> None:
    """A master whose policy promises nothing, and the base install, do without them."""
    told = (
        "import sys, dlq_master.policy.pipeline, dlq_master.policy.registry.registry as r; "
        "r.build('chronus')"
    )
    told += "; print(sorted({'numpy', 'scipy'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_without_deadlines_chronus_does_without_them_too() -> None:
    told = (
        "import sys; sys.modules['numpy'] = sys.modules['scipy'] = None; from "
        "support.builders import *; "
    )
    told += (
        "w = World('chronus', 1, None, know='unknown', place='consolidate').submit(a_job(1, 8)); "
    )
    told += "print(w.at(10.0).at(1500.0).running)"
    tests = Path(__file__).parents[4]
    ran = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )  # fmt: skip
    assert (ran.stdout.strip(), ran.stderr) == ("[1]", "")


def test_settings_become_the_choices_of_the_stages() -> None:
    policy = build(
        "tiresias-las",
        {
            "order": "first-start",
            "thresholds": "3250,7200",
            "place": "count",
            "preempt": "free",
            "promote_knob": "8",
            "starve_limit_s": "3600",
        },
    )
    assert policy.ordering.discipline is Discipline.FIRST_START
    assert policy.ordering.thresholds == (3250.0, 7200.0)
    assert (policy.ordering.promote_knob, policy.ordering.starve_limit_s) == (8.0, 3600.0)
    assert (policy.placement.name, policy.taking, policy.grid) == ("count", Taking.FREE, False)


def test_fifo_and_best_effort_never_take_work_away() -> None:
    assert build("fifo").taking is Taking.NEVER
    assert build("best-effort", {"preempt": "free"}).taking is Taking.NEVER
    assert build("fifo").blocking
    assert not build("best-effort").blocking


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("tiresias", {}, "did you mean 'tiresias-las'"),
        (
            "lottery",
            {},
            f"there are: {', '.join(sorted(PRESETS))}",
        ),
        ("fifo", {"order": "requeue"}, "no setting 'order'"),
        ("tiresias-las", {"treshold": "5"}, "did you mean 'thresholds'"),
        ("tiresias-las", {"order": "random"}, "expected one of requeue, first-start"),
        ("tiresias-las", {"thresholds": "5,x"}, "'x' is not a number"),
        ("tiresias-las", {"thresholds": "7,5"}, "must be positive and rise"),
        ("tiresias-las", {"thresholds": "0"}, "expected a positive number"),
        ("tiresias-las", {"thresholds": "nan"}, "expected a positive number"),
        ("tiresias-las", {"promote_knob": "-1"}, "expected a positive number"),
        (
            "tiresias-las",
            {"promote_to": "tail", "starve_limit_s": "9"},
            "goes with promote_knob only",
        ),
        ("srtf", {"know": "guessed"}, "expected one of unknown, profiled, known"),
        ("timeslice", {"preempt": "free"}, "policy timeslice has no setting 'preempt'"),
        ("sf", {"know": "known"}, "policy sf has no setting 'know'"),
        ("best-effort", {"place": "anywhere"}, "expected one of consolidate, spread, count"),
    ],
)
def test_a_slip_is_named(name: str, settings: dict[str, str], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        build(name, settings)
