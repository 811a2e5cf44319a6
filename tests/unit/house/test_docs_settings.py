"""The table of settings names the policies that take each of them."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dlq_master.policy.registry.presets import PRESETS

ROOT = Path(__file__).resolve().parents[3]
OF_A_SIMULATION = {"history", "queues", "teams", "profile_s", "noise"}  # read by the simulator


def rows() -> Iterator[tuple[str, str]]:
    """Each setting of a policy, and whose it is in words."""
    page = (ROOT / "docs/policies/settings.md").read_text()
    table = page[page.index("| setting | of |") :].split("\n\n")[0]
    before = ""
    for line in table.splitlines()[2:]:
        keys, of = line.split("|")[1:3]
        before = before if of.strip() == "the same" else of.strip()
        for key in re.findall(r"`(\w+)`", keys):
            yield key, before


def meant(of: str) -> set[str]:
    """The policies of such words."""
    named = re.findall(r"`([a-z0-9*-]+)`", of)
    those = {name for name in PRESETS if any(fnmatch(name, one) for one in named)}
    if of.startswith("all but"):
        return {*PRESETS} - those
    if of.startswith("all that preempt"):
        return {name for name, preset in PRESETS.items() if preset.preempts}
    return {*PRESETS} if of.startswith("all") else those


@pytest.mark.parametrize(("key", "of"), [row for row in rows() if row[0] not in OF_A_SIMULATION])
def test_a_setting_is_told_of_the_policies_that_take_it(key: str, of: str) -> None:
    assert meant(of) == {name for name, preset in PRESETS.items() if key in preset.settings}
