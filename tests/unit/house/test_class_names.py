"""A class name means one thing: public classes of the distribution share no names, but a few."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOMS = (
    "broker", "cli", "client", "common", "master", "nodeagent", "profiler", "simulator", "web",
    "notify",
)  # fmt: skip
# The same thing on both sides of the wire, of a state machine, or of the public modules for users.
SHARED = {
    "Beat",
    "Cancelled",
    "Checkpoint",
    "Cluster",
    "Failed",
    "Fence",
    "Found",
    "Heartbeat",
    "Job",
    "Launch",
    "LookAtGpus",
    "Released",
    "Resume",
    "Save",
    "Signal",
    "Stop",
    "Suspend",
    "TimedOut",
    "Updated",
}


@pytest.fixture(scope="module")
def names() -> Counter[str]:
    found: Counter[str] = Counter()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            found.update(re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE))
    return found


def test_no_two_public_classes_share_a_name(names: Counter[str]) -> None:
    twice = {name for name, count in names.items() if count > 1 and not name.startswith("_")}
    assert twice == SHARED
