"""Words that programs print are explained where people look them up."""

import re
from pathlib import Path

from dlq_master.model.why import ReasonCode
from dlq_master.policy.registry.presets import PRESETS
from dlq_simulator.columns import OPTIONAL, REQUIRED
from dlq_simulator.world_settings import PROFILING, WORLD

ROOT = Path(__file__).resolve().parents[3]


def explained(page: str) -> set[str]:
    """The words in code style of a page."""
    return set(re.findall(r"`([a-z0-9_-]+)`", (ROOT / page).read_text()))


def test_every_reason_code_has_a_meaning() -> None:
    assert {code.value for code in ReasonCode} <= explained("docs/reference/reasons.md")


def test_every_policy_setting_and_column_of_the_simulator_is_on_its_page() -> None:
    settings = {key for preset in PRESETS.values() for key in preset.settings}
    words = {
        word for page in (ROOT / "docs/policies").glob("*.md") for word in explained(str(page))
    }
    assert {*PRESETS, *settings, *WORLD, *PROFILING, *REQUIRED, *OPTIONAL} <= words
