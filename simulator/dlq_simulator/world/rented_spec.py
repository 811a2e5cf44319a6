"""The rules for renting machines beside own nodes: the table [renting] of a cluster file, as in
master.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlq_master.policy.priced.names import DEFAULT, SETTINGS
from dlq_simulator import toml_tables as toml
from dlq_simulator.errors import DataError

_KEYS = ("policy", "settings", "most_per_hour", "most_per_day")


@dataclass(frozen=True, slots=True, kw_only=True)
class RentingSpec:
    """The method that chooses machines, and the limits of their costs in an hour and in 24 hours
    (None: any).
    """

    policy: str = DEFAULT
    settings: Mapping[str, str] = field(default_factory=dict)
    most_per_hour: int | float | None = None
    most_per_day: int | float | None = None


def read_renting(path: str, document: Mapping[str, Any]) -> RentingSpec | None:
    """None: no machine is rented beside own nodes. Raises DataError."""
    if "renting" not in document:
        return None
    table, where = document["renting"], f"{path}, [renting]"
    if not isinstance(table, dict):
        raise DataError(where, "it is not a table", "write [renting] and keys below it")
    toml.only(where, table, _KEYS)
    policy = toml.text(where, table, "policy", DEFAULT)
    if policy not in SETTINGS:
        known = ", ".join(SETTINGS)
        raise DataError(where, f"there is no priced policy {policy!r}", f"choose one of {known}")
    settings = table.get("settings", {})
    if not isinstance(settings, dict) or not all(
        isinstance(word, str) for word in settings.values()
    ):
        raise DataError(where, "settings are words", 'write settings = { iterations = "50" }')
    for key in settings:
        if key not in SETTINGS[policy]:
            known = ", ".join(SETTINGS[policy]) or "none"
            raise DataError(where, f"policy {policy} has no setting {key!r}", f"it has {known}")
    return RentingSpec(
        policy=policy,
        settings=settings,
        most_per_hour=toml.number(where, table, "most_per_hour"),
        most_per_day=toml.number(where, table, "most_per_day"),
    )
