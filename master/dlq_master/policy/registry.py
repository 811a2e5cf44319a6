"""The only list of policies: name -> a choice for each stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.accounts import tells_of_members
from dlq_master.model.keys import KeyRule
from dlq_master.model.order import Ordering
from dlq_master.policy.order.arrival import ARRIVAL
from dlq_master.policy.order.by_key import (
    aged,
    always,
    longest_waiting,
    shortest,
    shortest_on_base,
    shortest_service,
    smallest,
    widest,
)
from dlq_master.policy.order.deadline import (
    earliest_deadline,
    earliest_deadline_of_all,
    least_laxity,
)
from dlq_master.policy.order.expected_left import expected_left
from dlq_master.policy.order.expected_reward import Chances
from dlq_master.policy.order.finish_time import Auction
from dlq_master.policy.order.gittins import Gittins
from dlq_master.policy.order.gittins_index import ServiceDistribution
from dlq_master.policy.order.share import ShareRules, shared
from dlq_master.policy.place.arranging import LOCAL_SEARCH, PATTERN
from dlq_master.policy.place.consolidate import CONSOLIDATE
from dlq_master.policy.place.groups import GROUPS
from dlq_master.policy.place.kept_together import keeping_together
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.place.skew import SKEW_GROUPS, Pack, packing
from dlq_master.policy.policy import Know, Policy
from dlq_master.policy.profile.rules import Profiles
from dlq_master.policy.promise.rules import Promises, Selects, Spot, Trials
from dlq_master.policy.reclaim.choices import ALGORITHM_1, EXACT, Reclaiming
from dlq_master.policy.sensitivity.packing import PackingRule
from dlq_master.policy.settings import PolicyError, Settings, parse, suggestion
from dlq_master.policy.size.choices import AFS, GROW_SHRINK, KNAPSACK, ROLLOUT
from dlq_master.policy.size.sizing import Sizing
from dlq_master.policy.transit.taking import Taking


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
    by_quota: bool = False  # each queue has its part of the cluster
    by_auction: bool = False
    by_chances: bool = False  # of rewards
    sizing: Sizing | None = None  # of elastic jobs
    reclaim: Reclaiming = EXACT  # of lent servers
    place: Placement = CONSOLIDATE
    promises: bool = False  # deadlines
    defaults: Mapping[str, str] = MappingProxyType({})  # of settings, where they are its own


_SKEW = ("pack", "packlimit", "predict", "tolerate")
_PLACE = ("place", "search", "reclaim", *_SKEW)
_COMMON = (*_PLACE, "preempt")
_GUARDED = ("min_run", "max_preemptions")  # of a policy that preempts
_BY_WORK = (*_GUARDED, "hysteresis", "aging")  # and whose key is in what is left to do
_TRIALS = ("profile_s", "profile_floor", "submit_gpus")
_CHRONUS = (
    *_PLACE,
    "know",
    "select",
    "selector",
    "guarantee",
    "margin",
    "be_floor",
    "slots",
    "spot",
    "thresholds",
    "trials",
    "slo_quota",
    "team_quota",
    "team_limit",
    "team_jobs",
    "share",
    "team_share",
    "half_life_s",
    "deadlines",
    *_BY_WORK,
    *_TRIALS,
)
_LEVELS = ("order", "thresholds", "promote_knob", "promote_to", "starve_limit_s", "refresh")

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "dlq": Preset(
            "the default: deadlines are promised to whom it is worth it, and keep their GPUs as late as the promise "
            "allows; until then, and for everybody else, the least expected work first; elastic jobs get their "
            "bases first and grow into what is left; at boundaries",
            (*_CHRONUS, "size", "cooldown_s"),
            preempts=True,
            knows=True,
            promises=True,
            sizing=ROLLOUT,
            place=SKEW_GROUPS,
            defaults=MappingProxyType(
                {
                    "pack": "known",
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
                }
            ),
        ),
        "fifo": Preset(
            "in the order of arrival; nobody passes a job that does not fit yet",
            _COMMON,
            blocking=True,
        ),
        "yarn-cs": Preset(
            "a static quota for each queue, and in it the order of arrival; nobody of the queue passes "
            "a job that does not fit yet",
            (*_COMMON, "quota"),
            blocking=True,
            by_quota=True,
        ),
        "best-effort": Preset("in the order of arrival, skipping what does not fit yet", _COMMON),
        "sf": Preset(
            "the fewest GPUs first, ties in the order of arrival; preempts at boundaries",
            (*_COMMON, *_GUARDED),
            preempts=True,
            key=always(smallest),
        ),
        "lf": Preset(
            "the most GPUs first, ties in the order of arrival; preempts at boundaries",
            (*_COMMON, *_GUARDED),
            preempts=True,
            key=always(widest),
        ),
        "srtf": Preset(
            "the shortest remaining time first; preempts at boundaries",
            (*_COMMON, "know", *_BY_WORK),
            preempts=True,
            key=always(shortest),
            knows=True,
        ),
        "srsf": Preset(
            "the smallest remaining service (time x GPUs) first; preempts at boundaries",
            (*_COMMON, "know", *_BY_WORK),
            preempts=True,
            key=always(shortest_service),
            knows=True,
        ),
        "timeslice": Preset(
            "in turns of a term: at every boundary who has waited longest takes over",
            (*_PLACE, *_GUARDED),  # without boundaries there would be no turns
            preempts=True,
            key=always(longest_waiting),
        ),
        "themis": Preset(
            "whose sharing costs most first, by finish time in the shared cluster over that alone; "
            "preempts at boundaries",
            (*_COMMON, "know", "fairness", *_GUARDED),
            preempts=True,
            knows=True,
            by_auction=True,
        ),
        "chronus": Preset(
            "deadlines are promised to whom it is worth it, and SLO leases go where they earn most (Chronus, "
            "improved); everybody else by shortest remaining time, at best-effort boundaries",
            _CHRONUS,
            preempts=True,
            knows=True,
            promises=True,
            place=PATTERN,
            defaults=MappingProxyType({"select": "all", "guarantee": "worth", "be_floor": "0.1"}),
        ),
        "chronus-paper": Preset(
            "deadlines are promised to whoever fits, and SLO leases go to them alone, counted in whole "
            "leases, as Chronus is printed; everybody else by shortest remaining time",
            _CHRONUS,
            preempts=True,
            knows=True,
            promises=True,
            place=LOCAL_SEARCH,
            defaults=MappingProxyType({"deadlines": "whole-leases"}),
        ),
        "edf": Preset(
            "the earliest deadline first; SLO jobs preempt best-effort ones at boundaries, never each "
            "other",
            (*_COMMON, *_GUARDED),
            preempts=True,
            key=always(earliest_deadline),
        ),
        "edf-preemptive": Preset(
            "the earliest deadline first; SLO jobs preempt each other and best-effort ones at boundaries",
            (*_COMMON, *_GUARDED),
            preempts=True,
            key=always(earliest_deadline_of_all),
        ),
        "3sigma": Preset(
            "the most expected reward for what it takes first; SLO jobs preempt best-effort ones at "
            "boundaries, never each other",
            (*_COMMON, "know", "errors", *_GUARDED),
            preempts=True,
            knows=True,
            by_chances=True,
        ),
        "genie": Preset(
            "the smallest laxity first; SLO jobs preempt best-effort ones at boundaries, never each other",
            (*_COMMON, "know", *_GUARDED),
            preempts=True,
            knows=True,
            key=always(least_laxity),
        ),
        "afs": Preset(
            "elastic: bases shortest first, then step by step to whom a GPU gains most (AFS); preempts "
            "and resizes at boundaries",
            (*_COMMON, "know", "cooldown_s", *_BY_WORK),
            preempts=True,
            knows=True,
            key=always(shortest_on_base),
            sizing=AFS,
        ),
        "gandiva-elastic": Preset(
            "elastic: bases in the order of arrival; while nobody waits, jobs grow on their own nodes, "
            "and shrink when somebody does, at boundaries",
            _COMMON,
            sizing=GROW_SHRINK,
        ),
        "aryl": Preset(
            "elastic: bases shortest first, then the knapsack of the time that more GPUs save (Aryl); "
            "resizes at boundaries, preempts nobody",
            (*_COMMON, "know", "size", "cooldown_s"),
            knows=True,
            key=always(shortest_on_base),
            sizing=KNAPSACK,
            reclaim=ALGORITHM_1,
            place=GROUPS,
        ),
        "tiresias-las": Preset(
            "least attained service first, in K levels of GPU-seconds; preempts at boundaries",
            (*_COMMON, *_LEVELS, *_GUARDED),
            preempts=True,
            by_service=True,
        ),
        "tiresias-gittins": Preset(
            "likeliest to end soon first, by the services of earlier jobs, in K levels; preempts at "
            "boundaries",
            (*_COMMON, *_LEVELS, "index", "quantum", "last", *_GUARDED),
            preempts=True,
            by_service=True,
            by_index=True,
        ),
    }
)


def build(
    name: str, settings: Mapping[str, str] | None = None, history_gpu_s: Iterable[float] = ()
) -> Policy:
    """The policy of that name with these settings; raises PolicyError naming what is wrong.

    `history_gpu_s`: services of earlier jobs, for policies with levels; none: those learn from the
    jobs that complete.
    """
    words = dict(settings or {})
    preset = PRESETS.get(name)
    if preset is None:
        raise PolicyError(f"there is no policy {name!r}{suggestion(name, tuple(PRESETS))}")
    chosen = parse(name, preset.settings, {**preset.defaults, **words})
    if "place" not in words:
        chosen = chosen._replace(place=preset.place)
    chosen = chosen._replace(place=packing(chosen.place, chosen.pack))
    if "search" in words and chosen.place.name != "local-search":
        raise PolicyError(f"policy {name}: setting 'search' needs place=local-search")
    if preset.promises and chosen.spot not in _BY_WORK_SPOTS:
        for word in ("aging", "hysteresis"):
            if word in words:
                raise PolicyError(
                    f"policy {name}: setting {word!r} needs an order by what is left to do: spot=expected, "
                    "srtf or srsf"
                )
    try:
        known = ServiceDistribution(history_gpu_s)
        ordering = _ordering(preset, chosen, known)
        if preset.promises and (rules := _shares(chosen, words)) is not None:
            ordering = _shared(name, chosen, ordering, rules)
    except ValueError as error:
        raise PolicyError(str(error)) from error
    return Policy(
        name=name,
        settings=MappingProxyType(words),
        ordering=ordering,
        placement=keeping_together(chosen.place) if preset.promises else chosen.place,
        packing=_packing(name, chosen, words),
        taking=_taking(preset, chosen),
        guards=chosen.guards,
        rule=_rule(preset, chosen),
        know=chosen.know if preset.knows else Know.UNKNOWN,
        blocking=preset.blocking,
        grid=not chosen.preempt_is_free,
        auction=Auction(fairness=chosen.fairness) if preset.by_auction else None,
        chances=_chances(chosen) if preset.by_chances else None,
        sizing=chosen.size or preset.sizing,
        reclaim=chosen.reclaim or preset.reclaim,
        quotas=chosen.quotas if preset.by_quota else None,
        borrowing=chosen.team_quotas if preset.promises else None,
        limits=chosen.team_limits if preset.promises else None,
        job_limits=chosen.team_jobs if preset.promises else None,
        shares=_shares(chosen, words) if preset.promises else None,
        promises=_promises(chosen) if preset.promises else None,
        profiling=_profiling(name, chosen, words) if preset.promises else None,
        profile_s=_profile_s(chosen) if preset.promises else None,
    )


def _shares(chosen: Settings, words: Mapping[str, str]) -> ShareRules | None:
    """By default they count only where somebody has said what is due to whom."""
    asked = "share" in words or chosen.team_shares is not None
    return ShareRules(chosen.half_life_s, chosen.team_shares) if chosen.fair and asked else None


def _shared(name: str, chosen: Settings, ordering: Ordering, rules: ShareRules) -> Ordering:
    if chosen.spot is Spot.LAS:
        raise PolicyError(f"policy {name}: share=fair does not go with spot=las, which has levels")
    return replace(ordering, key=shared(ordering.key), half_life_s=rules.half_life_s)


def _profiling(name: str, chosen: Settings, words: Mapping[str, str]) -> Profiles | None:
    if _tries(chosen):
        return chosen.profiles
    needs = "trials=partition" if chosen.know is Know.PROFILED else "know=profiled"
    for word in ("profile_floor", "submit_gpus"):
        if word in words:
            raise PolicyError(f"policy {name}: setting {word!r} needs {needs}")
    return None


def _profile_s(chosen: Settings) -> float | None:
    return chosen.profile_s if chosen.know is Know.PROFILED else None


def _tries(chosen: Settings) -> bool:
    """Whether jobs are measured on GPUs of their own."""
    return chosen.know is Know.PROFILED and chosen.trials is Trials.PARTITION


def _promises(chosen: Settings) -> Promises:
    exact = chosen.know is Know.KNOWN and chosen.margin is None
    return Promises(
        slot_terms=1 if chosen.selects is Selects.ALL else 4,
        slots=chosen.slots,
        selects=chosen.selects,
        guarantees=chosen.guarantees,
        selector=chosen.selector,
        be_floor=chosen.be_floor,
        margin=0.0 if exact else chosen.margin,
        floor=chosen.profiles.floor if _tries(chosen) else 0,
        whole_leases=chosen.whole_leases,
        quotas=chosen.slo_quotas,
    )


def _chances(chosen: Settings) -> Chances:
    """Run times that are known have no distribution."""
    return Chances.normal(0.0 if chosen.know is Know.KNOWN else chosen.errors)


def _packing(name: str, chosen: Settings, words: Mapping[str, str]) -> PackingRule | None:
    if chosen.place.packs:
        return PackingRule(
            chosen.packlimit,
            predicts=chosen.predicts,
            tolerated=chosen.tolerated_slowdown,
            unknown=None if chosen.pack is Pack.KNOWN else True,
        )
    for word in _SKEW:
        if word in words:
            raise PolicyError(
                f"policy {name}: setting {word!r} needs place=skew, skew-groups or pattern"
            )
    return None


def _ordering(preset: Preset, chosen: Settings, known: ServiceDistribution) -> Ordering:
    if preset.promises:
        told = (chosen.team_quotas, chosen.team_limits, chosen.team_jobs)
        by_team, by_member = any(it is not None for it in told), any(map(tells_of_members, told))
        return replace(
            _spot(chosen), by_base=preset.sizing is not None, by_team=by_team, by_member=by_member
        )
    if not preset.by_service:
        key = preset.key and aged(preset.key, chosen.aging)
        return replace(ARRIVAL, key=key, by_base=preset.sizing is not None)
    bounds, quantiles = chosen.thresholds
    if quantiles and len(known):
        bounds, quantiles = tuple(known.quantile(share) for share in quantiles), ()
    learns = bool(quantiles) or (preset.by_index and not len(known))
    return Ordering(
        discipline=chosen.order,
        thresholds=bounds,
        promote_knob=chosen.promote_knob,
        starve_limit_s=chosen.starve_limit_s,
        promote_to=chosen.promote_to,
        refresh=chosen.refresh if learns else None,
        quantiles=quantiles,
        key=_gittins(chosen, known) if preset.by_index else None,
    )


def _rule(preset: Preset, chosen: Settings) -> str:
    """The order in words: the first of a summary's are."""
    if preset.promises:
        return _SPOT_RULES[chosen.spot]
    return preset.summary.split(";")[0].split(",")[0].removeprefix("elastic: ")


def _spot(chosen: Settings) -> Ordering:
    """Lanes before everything else, and in each this order."""
    if chosen.spot is Spot.LAS:
        bounds = chosen.thresholds.bounds
        return Ordering(discipline=chosen.order, thresholds=bounds, lanes=True)
    if chosen.spot is Spot.EXPECTED:
        key = expected_left(_profile_s(chosen), chosen.aging)
        return Ordering(discipline=chosen.order, key=key, lanes=True)
    rule = _SPOT_KEYS[chosen.spot]
    if rule is not None and chosen.spot in _BY_WORK_SPOTS:
        rule = aged(rule, chosen.aging)
    return replace(ARRIVAL, key=rule, lanes=True)


_SPOT_KEYS: Mapping[Spot, KeyRule | None] = MappingProxyType(
    {
        Spot.SRTF: always(shortest),
        Spot.SRSF: always(shortest_service),
        Spot.SF: always(smallest),
        Spot.FIFO: None,
    }
)


_BY_WORK_SPOTS = frozenset({Spot.EXPECTED, Spot.SRTF, Spot.SRSF})
_SPOT_RULES: Mapping[Spot, str] = MappingProxyType(
    {
        Spot.EXPECTED: "the least expected work first",
        Spot.SRTF: "the shortest remaining time first",
        Spot.SRSF: "the smallest remaining service first",
        Spot.SF: "the fewest GPUs first",
        Spot.FIFO: "in the order of arrival",
        Spot.LAS: "the least attained service first",
    }
)


def _gittins(chosen: Settings, known: ServiceDistribution) -> Gittins:
    return Gittins(
        index=chosen.gittins_index,
        last=chosen.last,
        quantum_gpu_s=chosen.quantum_gpu_s,
        known=known if len(known) else None,
    )


def _taking(preset: Preset, chosen: Settings) -> Taking:
    if not preset.preempts:
        return Taking.NEVER
    return Taking.FREE if chosen.preempt_is_free else Taking.BOUNDARY
