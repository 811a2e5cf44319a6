"""Faults of a GPU, the actions on them, and when they are over: one table, pure functions.

The buckets follow NVIDIA's catalogue of Xids for Ampere and newer GPUs, as
docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html had it with Xids 1 to 172 (compared on
2026-11-29). docs/running/gpu-health.md has the differences. An application's own fault is no reason
to lose a GPU; a fault that needs a reset or a new part is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

XID = "xid_"


class Action(StrEnum):
    """The action on a symptom."""

    NONE = "none"  # an application's own fault, or a mere notice
    MONITOR = "monitor"  # shown; the GPU is used
    WAIT = "wait"  # takes no work as long as it is told
    RESET = "reset"  # takes no work until the host has booted, or an operator says so
    DRAIN = "drain"  # the same, and the whole node is drained
    RMA = "rma"  # takes no work until an operator says so, or another card is there


WITHHOLDS = frozenset({Action.WAIT, Action.RESET, Action.DRAIN, Action.RMA})
_STAYS = WITHHOLDS - {Action.WAIT}
_HEALED_BY_BOOT = frozenset({Action.RESET, Action.DRAIN})


def _xids(action: Action, *numbers: int) -> dict[str, Action]:
    return {f"{XID}{number}": action for number in numbers}


# A code that is missing here is `monitor`.
ACTIONS: Mapping[str, Action] = {
    # RESTART_APP and IGNORE: engine exceptions, page faults and channels of an application
    **_xids(Action.NONE, 8, 11, 13, 14, 25, 31, 32, 37, 38, 39, 40, 41, 42, 43, 44, 45, 60, 66, 67),
    **_xids(Action.NONE, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 96, 97),
    **_xids(Action.NONE, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 126, 127, 128, 129),
    **_xids(Action.NONE, 130, 131, 132, 133, 134, 135, 137, 139, 141),
    # notices; the facts below carry their consequences
    **_xids(Action.MONITOR, 63, 74, 92, 94, 121, 154),
    # RESET_GPU: memory or a microcontroller in an unknown state
    **_xids(Action.RESET, 46, 48, 61, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    # RESTART_BM: the bus, or the whole machine (167 is in no bucket yet)
    **_xids(Action.DRAIN, 79, 167),
    # no row, or no channel, is left to replace a bad one (the catalogue: ignore, and ask support)
    **_xids(Action.RMA, 157, 161),
    # facts: told as long as they are so
    "gpu_is_lost": Action.DRAIN,
    "reset_required": Action.RESET,
    "recovery_reset": Action.RESET,  # the driver's own word (NVML: GPU recovery action)
    "recovery_reboot": Action.DRAIN,
    "row_remap_pending": Action.RESET,
    "page_retirement_pending": Action.RESET,
    "row_remap_failed": Action.RMA,
    "ecc_uncorrected": Action.MONITOR,
    "thermal_slowdown": Action.MONITOR,
    "power_brake": Action.MONITOR,
    "nvlink_down": Action.MONITOR,
    "nvlink_errors": Action.MONITOR,
    "odd_answer": Action.MONITOR,  # a side question failed: the GPU itself answers
    "held": Action.WAIT,  # something computes on it, or holds its memory, for no job of ours
    "mig_mode": Action.WAIT,  # MIG is on: it is no whole GPU
    "timeout": Action.WAIT,
    "driver_hangs": Action.WAIT,
}


# Of those that are only shown: the faults that no program can cause. Xids that are not in the table
# are not known to be.
_OF_HARDWARE = frozenset(
    {*_xids(Action.MONITOR, 63, 74, 92, 94, 121), "ecc_uncorrected", "nvlink_down"}
)


class GpuCondition(NamedTuple):
    """Something that is, or was and is not over yet, wrong with one GPU of a node."""

    gpu: int  # its number
    code: str
    action: Action
    since_s: float
    detail: str = ""
    uuid: str = ""  # of the card; another card in its place is another matter

    @property
    def withholds(self) -> bool:
        return self.action in WITHHOLDS

    def __str__(self) -> str:
        return f"GPU {self.gpu}: {self.code}" + (f" ({self.detail})" if self.detail else "")


class Cleared(NamedTuple):
    """An operator has declared a GPU healthy: earlier symptoms count no more."""

    gpu: int  # its number
    time_s: float


class Symptom(NamedTuple):
    """The report of a node: a message of the driver at that time, or a fact of that time."""

    code: str
    time_s: float
    detail: str = ""


def actions_of(words: Mapping[str, str]) -> Mapping[str, Action]:
    """The table with an operator's own words in it; ValueError names a word without sense."""
    actions = dict(ACTIONS)
    for code, word in words.items():
        if code not in ACTIONS and not _is_xid(code):
            raise ValueError(f"{code!r} is no symptom: xid_NUMBER, or one of {', '.join(_facts())}")
        if word not in set(Action):
            raise ValueError(f"{code} = {word!r}: one of {', '.join(Action)}")
        actions[code] = Action(word)
    return actions


def action_of(actions: Mapping[str, Action], code: str) -> Action:
    """The action on a symptom. An unknown symptom is shown, and a driver's error waited for."""
    unknown = Action.WAIT if code.startswith("nvml_error") else Action.MONITOR
    return actions.get(code, unknown)


def judge(
    before: Iterable[GpuCondition],
    told: Mapping[int, tuple[Symptom, ...]],
    *,
    uuids: Mapping[int, str],
    cleared: Iterable[Cleared],
    actions: Mapping[str, Action],
) -> tuple[GpuCondition, ...]:
    """The conditions of a node after it has told all of its GPUs; by GPU and code.

    A repeat of what is known changes nothing but its words. A symptom that is not reported any more
    is over, unless its action says that it takes more than that.
    """
    known = {(one.gpu, one.code): one for one in before if uuids.get(one.gpu) == one.uuid}
    since = {one.gpu: one.time_s for one in cleared}
    found: dict[tuple[int, str], GpuCondition] = {}
    for one in known.values():
        action = action_of(actions, one.code)
        if action in _STAYS or one.gpu not in told:
            found[one.gpu, one.code] = one._replace(action=action)
    for index, symptoms in told.items():
        if index in uuids:
            for symptom in _counting(symptoms, since.get(index)):
                action = action_of(actions, symptom.code)
                old = known.get((index, symptom.code))
                since_s = symptom.time_s if old is None else old.since_s
                found[index, symptom.code] = GpuCondition(
                    index, symptom.code, action, since_s, symptom.detail, uuids[index]
                )
    return tuple(sorted(one for one in found.values() if one.action is not Action.NONE))


def after_boot(
    conditions: Iterable[GpuCondition], uuids: Mapping[int, str]
) -> tuple[GpuCondition, ...]:
    """The conditions left when the host has booted; the agent reports those that still hold."""
    stays = _STAYS - _HEALED_BY_BOOT
    return tuple(
        one for one in conditions if one.action in stays and uuids.get(one.gpu) == one.uuid
    )


def _counting(symptoms: Iterable[Symptom], cleared_s: float | None) -> Iterator[Symptom]:
    """A message of the driver counts once: not again after an operator has heard of it."""
    for symptom in symptoms:
        if cleared_s is None or symptom.time_s > cleared_s or not _is_xid(symptom.code):
            yield symptom


def _is_xid(code: str) -> bool:
    number = code.removeprefix(XID)
    return number != code and number.isascii() and number.isdigit()


def _facts() -> list[str]:
    return sorted(code for code in ACTIONS if not _is_xid(code))


def is_hardware(condition: GpuCondition) -> bool:
    """Whether the card is at fault, and not a program on it, as far as its driver says."""
    return condition.action in _STAYS or condition.code in _OF_HARDWARE


class Figures(NamedTuple):
    """The last measurements of a GPU; None: its driver does not say."""

    temperature_celsius: int | None
    utilization_percent: int | None
    used_memory_bytes: int | None
    mean_utilization_percent: float | None = None
    power_watts: int | None = None
    clock_mhz: int | None = None
    idle_s: float | None = None  # so long nothing has run on it; None: not known
