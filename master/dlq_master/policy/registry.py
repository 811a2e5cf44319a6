"""The only list of policies: name -> a choice for each stage."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.order import Ordering
from dlq_master.policy.order.arrival import ARRIVAL
from dlq_master.policy.order.by_key import Key, shortest, shortest_service, smallest
from dlq_master.policy.policy import Know, Policy
from dlq_master.policy.settings import PolicyError, Settings, parse, suggestion
from dlq_master.policy.transit.taking import Taking


class Preset(NamedTuple):
    """A published system, or a plain rule, by the name it is known under."""

    summary: str
    settings: tuple[str, ...]  # keys it accepts
    preempts: bool = False
    blocking: bool = False
    by_service: bool = False
    key: Key | None = None
    knows: bool = False  # it cannot do without run times


_COMMON = ("place", "preempt")

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "fifo": Preset(
            "in the order of arrival; nobody passes a job that does not fit yet",
            _COMMON,
            blocking=True,
        ),
        "best-effort": Preset("in the order of arrival, skipping what does not fit yet", _COMMON),
        "sf": Preset(
            "the fewest GPUs first, ties in the order of arrival; preempts at boundaries",
            _COMMON,
            preempts=True,
            key=smallest,
        ),
        "srtf": Preset(
            "the shortest remaining time first; preempts at boundaries",
            (*_COMMON, "know"),
            preempts=True,
            key=shortest,
            knows=True,
        ),
        "srsf": Preset(
            "the smallest remaining service (time x GPUs) first; preempts at boundaries",
            (*_COMMON, "know"),
            preempts=True,
            key=shortest_service,
            knows=True,
        ),
        "tiresias-las": Preset(
            "least attained service first, in K levels of GPU-seconds; preempts at boundaries",
            (*_COMMON, "order", "thresholds", "promote_knob", "starve_limit_s"),
            preempts=True,
            by_service=True,
        ),
    }
)


def build(name: str, settings: Mapping[str, str] | None = None) -> Policy:
    """The policy of that name with these settings; raises PolicyError naming what is wrong."""
    words = dict(settings or {})
    preset = PRESETS.get(name)
    if preset is None:
        raise PolicyError(f"there is no policy {name!r}{suggestion(name, tuple(PRESETS))}")
    chosen = parse(name, preset.settings, words)
    try:
        ordering = _by_service(chosen) if preset.by_service else ARRIVAL
    except ValueError as error:
        raise PolicyError(str(error)) from error
    return Policy(
        name=name,
        settings=MappingProxyType(words),
        ordering=ordering,
        placement=chosen.place,
        taking=_taking(preset, chosen),
        key=preset.key,
        know=chosen.know if preset.knows else Know.UNKNOWN,
        blocking=preset.blocking,
        grid=not chosen.preempt_is_free,
    )


def _by_service(chosen: Settings) -> Ordering:
    return Ordering(
        discipline=chosen.order,
        thresholds=chosen.thresholds,
        promote_knob=chosen.promote_knob,
        starve_limit_s=chosen.starve_limit_s,
    )


def _taking(preset: Preset, chosen: Settings) -> Taking:
    if not preset.preempts:
        return Taking.NEVER
    return Taking.FREE if chosen.preempt_is_free else Taking.BOUNDARY
