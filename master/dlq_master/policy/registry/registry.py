"""A preset and its settings -> the policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from dlq_master.model.attempts.suspending import SuspendRules
from dlq_master.model.jobs.accounts import tells_of_members
from dlq_master.model.order.keys import KeyRule
from dlq_master.model.order.order import Ordering
from dlq_master.policy.order.alike import REFRESH
from dlq_master.policy.order.by_key import (
    ARRIVAL,
    aged,
    always,
    shortest,
    shortest_service,
    smallest,
)
from dlq_master.policy.order.expected_left import expected_left, moving
from dlq_master.policy.order.foresight import FewJobs
from dlq_master.policy.order.gittins import Gittins, ServiceDistribution
from dlq_master.policy.order.lateness import ByLateness
from dlq_master.policy.order.share import ShareRules, shared
from dlq_master.policy.order.stage import KEPT_ORDER, Order
from dlq_master.policy.place.consolidate import keeping_together
from dlq_master.policy.place.skew import Pack, packing
from dlq_master.policy.policy import Know, Policy
from dlq_master.policy.promise.capacity.rules import (
    CHANCE_TERMS,
    SELECTED_TERMS,
    SLOT_TERMS,
    Promises,
    Selects,
    Spot,
    Trials,
)
from dlq_master.policy.registry.presets import PRESETS, SKEW, Preset
from dlq_master.policy.registry.settings import PolicyError, PolicySettings, parse, suggestion
from dlq_master.policy.sensitivity.packing import PackingRule
from dlq_master.policy.size.choices import OF_ORDER
from dlq_master.policy.size.sizing import Sizing
from dlq_master.policy.transit.taking import Taking
from dlq_master.policy.trial.rules import TrialRules

_SLOT_TERMS = {
    Selects.GUARANTEED: SLOT_TERMS,
    Selects.LAST_CHANCE: CHANCE_TERMS,
    Selects.ALL: SELECTED_TERMS,
}
AT_ONCE_MIN_RUN = 1.0  # what a pause and a resume cost, before the next one


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
    if chosen.preempt is Taking.SUSPEND:
        chosen = chosen._replace(preempt=Taking.AT_ONCE, suspend=chosen.suspend or SuspendRules())
    if chosen.preempt is Taking.AT_ONCE:
        chosen = _at_once(name, preset, chosen, words)
    if preset.promises and chosen.spot not in BY_WORK:
        for word in ("aging", "hysteresis"):
            if word in words:
                raise PolicyError(
                    f"policy {name}: setting {word!r} needs an order by what is left to do: "
                    "spot=expected, srtf or srsf"
                )
    if "foresight" in words and chosen.spot is not Spot.EXPECTED:
        raise PolicyError(f"policy {name}: setting 'foresight' needs spot=expected")
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
        suspends=chosen.suspends if preset.preempts else None,
        rule=_rule(preset, chosen),
        know=chosen.know if preset.knows else Know.UNKNOWN,
        blocking=preset.blocking,
        grid=chosen.preempt is not Taking.FREE,
        order=_order(preset, chosen, words),
        sizing=_sizing(preset, chosen),
        reclaim=chosen.reclaim or preset.reclaim,
        divides=None if preset.divides is None else preset.divides(chosen),
        borrowing=chosen.team_quotas if preset.promises else None,
        limits=chosen.team_limits if preset.promises else None,
        job_limits=chosen.team_jobs if preset.promises else None,
        quota_unit=chosen.quota_unit,
        shares=_shares(chosen, words) if preset.promises else None,
        queue_floor=chosen.queue_floor,
        promises=_promises(chosen) if preset.promises else None,
        profiling=_profiling(name, chosen, words) if preset.promises else None,
        profile_s=_profile_s(chosen) if preset.promises else None,
    )


def _order(preset: Preset, chosen: PolicySettings, words: Mapping[str, str]) -> Order:
    """A look ahead and costs of being late know nothing of the rights of teams, so those come
    first.
    """
    if preset.order is not None:
        return preset.order(chosen)
    teams = (chosen.team_quotas, chosen.team_limits, chosen.team_jobs, _shares(chosen, words))
    if not preset.promises or chosen.spot is not Spot.EXPECTED or any(teams):
        return KEPT_ORDER
    known = (_profile_s(chosen), chosen.aging)
    return ByLateness(FewJobs(*known) if chosen.foresight else KEPT_ORDER, *known)


def _shares(chosen: PolicySettings, words: Mapping[str, str]) -> ShareRules | None:
    """By default they count only where somebody has said what is due to whom."""
    asked = "share" in words or chosen.team_shares is not None
    return ShareRules(chosen.half_life_s, chosen.team_shares) if chosen.fair and asked else None


def _shared(name: str, chosen: PolicySettings, ordering: Ordering, rules: ShareRules) -> Ordering:
    if chosen.spot is Spot.LAS:
        raise PolicyError(f"policy {name}: share=fair does not go with spot=las, which has levels")
    return replace(ordering, key=shared(ordering.key), half_life_s=rules.half_life_s)


def _profiling(name: str, chosen: PolicySettings, words: Mapping[str, str]) -> TrialRules | None:
    if _tries(chosen):
        return chosen.profiles
    needs = "trials=partition" if chosen.know is Know.PROFILED else "know=profiled"
    for word in ("profile_floor", "submit_gpus"):
        if word in words:
            raise PolicyError(f"policy {name}: setting {word!r} needs {needs}")
    return None


def _profile_s(chosen: PolicySettings) -> float | None:
    return chosen.profile_s if chosen.know is Know.PROFILED else None


def _tries(chosen: PolicySettings) -> bool:
    return chosen.know is Know.PROFILED and chosen.trials is Trials.PARTITION


def _promises(chosen: PolicySettings) -> Promises:
    exact = chosen.know is Know.KNOWN and chosen.margin is None
    return Promises(
        slot_terms=_SLOT_TERMS[chosen.selects],
        slots=chosen.slots,
        selects=chosen.selects,
        guarantees=chosen.guarantees,
        selector=chosen.selector,
        solver_s=chosen.solver_s,
        anew=chosen.placed_anew,
        be_floor=chosen.be_floor,
        margin=0.0 if exact else chosen.margin,
        keep=chosen.keep_promises,
        floor=chosen.profiles.floor if _tries(chosen) else 0,
        whole_leases=chosen.whole_leases,
        rounds_up=chosen.rounds_up,
        quotas=chosen.slo_quotas,
        queue_floor=0.0 if chosen.queue_floor is None else chosen.queue_floor.amount,
    )


def _packing(name: str, chosen: PolicySettings, words: Mapping[str, str]) -> PackingRule | None:
    if chosen.place.packs:
        return PackingRule(
            chosen.packlimit,
            predicts=chosen.predicts,
            tolerated=chosen.tolerated_slowdown,
            unknown=None if chosen.pack is Pack.KNOWN else True,
        )
    for word in SKEW:
        if word in words:
            raise PolicyError(
                f"policy {name}: setting {word!r} needs place=skew, skew-groups or pattern"
            )
    return None


def _ordering(preset: Preset, chosen: PolicySettings, known: ServiceDistribution) -> Ordering:
    if preset.promises:
        told = (chosen.team_quotas, chosen.team_limits, chosen.team_jobs)
        by_team, by_member = any(it is not None for it in told), any(map(tells_of_members, told))
        return replace(
            spot_ordering(chosen, _profile_s(chosen)),
            by_base=_sizing(preset, chosen) is not None,
            by_team=by_team,
            by_member=by_member,
            keep_s=chosen.keep_gpus_s,
        )
    if not preset.by_service:
        key = preset.key and aged(preset.key, chosen.aging)
        return replace(ARRIVAL, key=key, by_base=_sizing(preset, chosen) is not None)
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


def _rule(preset: Preset, chosen: PolicySettings) -> str:
    """The order in words: the first of a summary's are."""
    if preset.promises:
        return SPOT_RULES[chosen.spot]
    return preset.summary.split(";")[0].split(",")[0].removeprefix("elastic: ")


def _gittins(chosen: PolicySettings, known: ServiceDistribution) -> Gittins:
    return Gittins(
        index=chosen.gittins_index,
        last=chosen.last,
        quantum_gpu_s=chosen.quantum_gpu_s,
        known=known if len(known) else None,
    )


def _at_once(
    name: str, preset: Preset, chosen: PolicySettings, words: Mapping[str, str]
) -> PolicySettings:
    """A job that has just started is safe from the next arrival, unless `min_run` says otherwise.
    Orders and sizes that are made for whole terms cannot be had at any event.
    """
    if _sizing(preset, chosen) is not None or (preset.order is not None and preset.key is None):
        raise PolicyError(f"setting preempt=at-once: policy {name} decides at boundaries")
    return chosen if "min_run" in words else chosen._replace(min_run=AT_ONCE_MIN_RUN)


def _sizing(preset: Preset, chosen: PolicySettings) -> Sizing | None:
    return chosen.size or (OF_ORDER if chosen.chooses_sizes else preset.sizing)


def _taking(preset: Preset, chosen: PolicySettings) -> Taking:
    return chosen.preempt if preset.preempts else Taking.NEVER


_SPOT_KEYS: Mapping[Spot, KeyRule | None] = MappingProxyType(
    {
        Spot.SRTF: always(shortest),
        Spot.SRSF: always(shortest_service),
        Spot.SF: always(smallest),
        Spot.FIFO: None,
    }
)


BY_WORK = frozenset({Spot.EXPECTED, Spot.SRTF, Spot.SRSF})
SPOT_RULES: Mapping[Spot, str] = MappingProxyType(
    {
        Spot.EXPECTED: "the least expected work first",
        Spot.SRTF: "the shortest remaining time first",
        Spot.SRSF: "the smallest remaining service first",
        Spot.SF: "the fewest GPUs first",
        Spot.FIFO: "in the order of arrival",
        Spot.LAS: "the least attained service first",
    }
)


def spot_ordering(chosen: PolicySettings, profile_s: float | None) -> Ordering:
    """Bands before everything else, and in each this order."""
    if chosen.spot is Spot.LAS:
        bounds = chosen.thresholds.bounds
        return Ordering(discipline=chosen.order, thresholds=bounds, bands=True)
    if chosen.spot is Spot.EXPECTED:
        return Ordering(
            discipline=chosen.order,
            key=expected_left(profile_s, chosen.aging),
            moving=moving(profile_s),
            bands=True,
            refresh=REFRESH,
        )
    rule = _SPOT_KEYS[chosen.spot]
    if rule is not None and chosen.spot in BY_WORK:
        rule = aged(rule, chosen.aging)
    return replace(ARRIVAL, key=rule, bands=True)
