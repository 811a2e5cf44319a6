"""The only list of policies: name -> a choice for each stage, and the settings that it takes.

Packages add presets of their own by an entry point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dlq_master.model.order.keys import KeyRule
from dlq_master.policy.order.by_key import (
    always,
    longest_waiting,
    shortest,
    shortest_on_base,
    shortest_service,
    smallest,
    widest,
)
from dlq_master.policy.order.stage import Order
from dlq_master.policy.partition.stage import Partition
from dlq_master.policy.place.allocation.grouped import GROUPS
from dlq_master.policy.place.consolidate import CONSOLIDATE
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.place.skew import SKEW_GROUPS
from dlq_master.policy.place.whole.arranging import LOCAL_SEARCH, PATTERN
from dlq_master.policy.reclaim.choices import ALGORITHM_1, EXACT, Reclaiming
from dlq_master.policy.registry.settings import PolicySettings
from dlq_master.policy.size.choices import AFS, KNAPSACK_EXACT, ROLLOUT
from dlq_master.policy.size.sizing import Sizing

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "dlq.policies"


class Preset(NamedTuple):
    """A published system, or a plain rule, by the name it is known under."""

    summary: str
    settings: tuple[str, ...]  # keys it accepts
    preempts: bool = False
    blocking: bool = False
    by_service: bool = False
    key: KeyRule | None = None
    by_index: bool = False  # inside a level
    knows: bool = False  # it cannot do without run times
    divides: Callable[[PolicySettings], Partition] | None = None  # a partition of its own
    order: Callable[[PolicySettings], Order] | None = None  # an order of its own
    sizing: Sizing | None = None  # of elastic jobs
    reclaim: Reclaiming = EXACT  # of lent servers
    place: Placement = CONSOLIDATE
    promises: bool = False  # deadlines
    defaults: Mapping[str, str] = MappingProxyType({})  # of settings, where they are its own
    # Terms and costs of its replays, where they are its own. A master keeps those of its file.
    replayed: Mapping[str, str] = MappingProxyType({})
    simulated: str = ""  # why no master can run it; "" = one can


SKEW = ("pack", "packlimit", "predict", "tolerate")
PLACE = ("place", "search", "reclaim", *SKEW)
COMMON = (*PLACE, "preempt")
# Of a policy that preempts.
GUARDED = ("min_run", "max_preemptions", "suspend", "suspend_guests_s")
_BY_WORK = (*GUARDED, "hysteresis", "aging")  # and whose key is in what is left to do
_TRIALS = ("profile_s", "profile_floor", "submit_gpus")
_CHRONUS = (
    *PLACE,
    "know",
    "select",
    "selector",
    "solver_s",
    "rearrange",
    "guarantee",
    "margin",
    "keep_promises",
    "be_floor",
    "slots",
    "spot",
    "thresholds",
    "trials",
    "slo_quota",
    "team_quota",
    "team_limit",
    "team_jobs",
    "quota_unit",
    "share",
    "team_share",
    "half_life_s",
    "deadlines",
    "round_up",
    *_BY_WORK,
    *_TRIALS,
)
_LEVELS = ("order", "thresholds", "promote_knob", "promote_to", "starve_limit_s", "refresh")

_OWN: Mapping[str, Preset] = MappingProxyType(
    {
        "dlq": Preset(
            "the default: promises deadlines that are worth their GPUs, and runs these jobs as "
            "late as the promise allows. All other jobs go by least expected work. Elastic jobs "
            "get their bases first and grow into the rest. Changes come at boundaries",
            (*_CHRONUS, "size", "cooldown_s", "foresight", "queue_floor", "keep_gpus_s"),
            preempts=True,
            knows=True,
            promises=True,
            sizing=ROLLOUT,
            place=SKEW_GROUPS,
            defaults=MappingProxyType(
                {
                    "pack": "known",
                    "select": "last-chance",
                    "guarantee": "worth",
                    "be_floor": "0.1",
                    "slots": "late",
                    "spot": "expected",
                    "trials": "in-place",
                    "share": "fair",
                    "min_run": "2",
                    "hysteresis": "1",
                    "max_preemptions": "20",
                    "aging": "0.02",
                    "cooldown_s": "600",
                    "foresight": "on",
                    "keep_gpus_s": "300",
                }
            ),
        ),
        "fifo": Preset(
            "in the order of arrival; nobody passes a job that does not fit yet",
            COMMON,
            blocking=True,
        ),
        "best-effort": Preset("in the order of arrival, skipping what does not fit yet", COMMON),
        "sf": Preset(
            "the fewest GPUs first, ties in the order of arrival; preempts at boundaries",
            (*COMMON, *GUARDED),
            preempts=True,
            key=always(smallest),
        ),
        "lf": Preset(
            "the most GPUs first, ties in the order of arrival; preempts at boundaries",
            (*COMMON, *GUARDED),
            preempts=True,
            key=always(widest),
        ),
        "srtf": Preset(
            "the shortest remaining time first; preempts at boundaries",
            (*COMMON, "know", *_BY_WORK),
            preempts=True,
            key=always(shortest),
            knows=True,
        ),
        "srsf": Preset(
            "the smallest remaining service (time x GPUs) first; preempts at boundaries",
            (*COMMON, "know", *_BY_WORK),
            preempts=True,
            key=always(shortest_service),
            knows=True,
        ),
        "timeslice": Preset(
            "in turns of a term: at every boundary who has waited longest takes over",
            (*PLACE, *GUARDED),  # without boundaries there would be no turns
            preempts=True,
            key=always(longest_waiting),
        ),
        "chronus": Preset(
            "promises deadlines that are worth their GPUs, and SLO leases go where they earn most "
            "(Chronus, improved). All others go by shortest remaining time, at best-effort "
            "boundaries",
            _CHRONUS,
            preempts=True,
            knows=True,
            promises=True,
            place=PATTERN,
            defaults=MappingProxyType({"select": "all", "guarantee": "worth", "be_floor": "0.1"}),
        ),
        "chronus-paper": Preset(
            "Chronus as printed: its integer program judges deadlines in whole leases, and chooses "
            "who gets SLO leases; all others by shortest remaining time",
            _CHRONUS,
            preempts=True,
            knows=True,
            promises=True,
            place=LOCAL_SEARCH,
            defaults=MappingProxyType(
                {"deadlines": "whole-leases", "selector": "printed", "rearrange": "cycle"}
            ),
        ),
        "afs": Preset(
            "elastic: bases shortest first, then step by step to whom a GPU gains most (AFS); "
            "preempts and resizes at boundaries",
            (*COMMON, "know", "cooldown_s", *_BY_WORK),
            preempts=True,
            knows=True,
            key=always(shortest_on_base),
            sizing=AFS,
        ),
        "aryl": Preset(
            "elastic: bases shortest first, then the knapsack of the time that more GPUs save "
            "(Aryl); resizes at boundaries, preempts nobody",
            (*COMMON, "know", "size", "cooldown_s"),
            knows=True,
            key=always(shortest_on_base),
            sizing=KNAPSACK_EXACT,
            reclaim=ALGORITHM_1,
            place=GROUPS,
        ),
        "tiresias-las": Preset(
            "least attained service first, in K levels of GPU-seconds; preempts at boundaries",
            (*COMMON, *_LEVELS, *GUARDED),
            preempts=True,
            by_service=True,
        ),
        "tiresias-gittins": Preset(
            "likeliest to end soon first, by the services of earlier jobs, in K levels; preempts "
            "at boundaries",
            (*COMMON, *_LEVELS, "index", "quantum", "last", *GUARDED),
            preempts=True,
            by_service=True,
            by_index=True,
        ),
    }
)


class KnownPresets(Mapping[str, Preset]):
    """Our own presets, and those of installed packages: entry points of the group `dlq.policies`.

    A preset of another package is imported when it is first asked for.
    """

    def __getitem__(self, name: str) -> Preset:
        return _OWN[name] if name in _OWN else _loaded(name)

    def __contains__(self, name: object) -> bool:
        return name in _OWN or name in _points()

    def __iter__(self) -> Iterator[str]:
        return iter((*_OWN, *_points()))

    def __len__(self) -> int:
        return len(_OWN) + len(_points())


PRESETS: Mapping[str, Preset] = KnownPresets()


@cache
def _points() -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points  # it has 22 modules, and most masters do without

    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    return {name: found[name] for name in sorted(found) if name not in _OWN}


@cache
def _loaded(name: str) -> Preset:
    preset = _points()[name].load()
    if not isinstance(preset, Preset):
        raise TypeError(f"entry point {name!r} of {ENTRY_POINTS} is no Preset")
    return preset
