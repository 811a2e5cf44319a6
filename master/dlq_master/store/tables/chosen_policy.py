"""The chosen policy, the person that chose it, and when: one value, stored in the table of single
values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

CHOSEN: Final = "policy"  # its key there


class Chosen(NamedTuple):
    """A policy by its name and settings, the person that set it (`""`: master.toml), and since
    when.
    """

    policy: str
    settings: Mapping[str, str]
    by: str
    since_s: float

    def same(self, other: Chosen) -> bool:
        """Whether both name the same policy, by any person."""
        return (self.policy, dict(self.settings)) == (other.policy, dict(other.settings))

    @property
    def words(self) -> str:
        """The settings, for people."""
        return " ".join(f"{key}={value}" for key, value in sorted(self.settings.items()))


def read_chosen(text: str) -> Chosen:
    """A stored choice."""
    body = json.loads(text)
    return Chosen(body["policy"], body["settings"], body["by"], body["since_s"])


def written(chosen: Chosen) -> str:
    """The same, to be stored."""
    return json.dumps({**chosen._asdict(), "settings": dict(chosen.settings)}, sort_keys=True)
