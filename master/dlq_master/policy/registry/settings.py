"""Settings of a policy: `key=value` words in, typed values out, every slip named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dlq_master.model.attempts.suspending import SuspendRules
from dlq_master.model.jobs.trials import WINDOW_S
from dlq_master.model.order.order import Discipline, PromoteTo
from dlq_master.policy.order.gittins import Index, Last
from dlq_master.policy.order.share import HALF_LIFE_S
from dlq_master.policy.partition import quotas
from dlq_master.policy.partition.quota_units import QuotaUnit
from dlq_master.policy.partition.quotas import QueueFloor, Quotas
from dlq_master.policy.place.allocation.grouped import GROUPS
from dlq_master.policy.place.consolidate import CONSOLIDATE
from dlq_master.policy.place.halving import HALVING
from dlq_master.policy.place.ilp import ILP
from dlq_master.policy.place.packing.joint import SPACE
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.place.skew import SKEW, SKEW_GROUPS, Pack
from dlq_master.policy.place.spread import COUNT, SPREAD
from dlq_master.policy.place.whole.arranging import LOCAL_SEARCH, PATTERN, local_search_within
from dlq_master.policy.policy import Know
from dlq_master.policy.promise.capacity.margins import KEEP
from dlq_master.policy.promise.capacity.rules import (
    SOLVER_S,
    Guarantees,
    Selector,
    Selects,
    Slots,
    Spot,
    Trials,
)
from dlq_master.policy.reclaim.choices import RECLAIMS, Reclaiming
from dlq_master.policy.sensitivity.packing import DEFAULT, TOLERATED
from dlq_master.policy.size.choices import SIZINGS
from dlq_master.policy.size.sizing import Sizing
from dlq_master.policy.transit.guards import Guards
from dlq_master.policy.transit.taking import Taking
from dlq_master.policy.trial.rules import FLOOR, PROFILE_S, TrialRules

ERRORS = 0.2  # standard deviation of run time over estimate, where no setting gives another


class PolicyError(ValueError):
    """No such policy, setting or value; says what there is instead."""


class Thresholds(NamedTuple):
    """Upper bounds of all levels but the last, in attained GPU-seconds; `quantiles` of what jobs
    have needed take their place once that is known."""

    bounds: tuple[float, ...]
    quantiles: tuple[float, ...] = ()


class PolicySettings(NamedTuple):
    """Everything a preset may be told. A preset accepts only the settings it uses."""

    order: Discipline = Discipline.REQUEUE
    thresholds: Thresholds = Thresholds((3200.0,))
    place: Placement = CONSOLIDATE
    preempt: Taking = Taking.BOUNDARY
    promote_knob: float | None = None
    starve_limit_s: float | None = None
    promote_to: PromoteTo = PromoteTo.HEAD
    know: Know = Know.KNOWN
    gittins_index: Index = Index.FIXED
    last: Last = Last.FIFO
    quantum_gpu_s: float | None = None  # None: the upper bound of the level
    refresh: int = 100  # completions
    quotas: Quotas = Quotas()
    fairness: float = 0.8
    errors: float = ERRORS
    by_program: bool = False
    chooses_sizes: bool = False
    packlimit: float | None = DEFAULT  # None: learned
    pack: Pack = Pack.WAIT
    predicts: bool = True
    tolerated_slowdown: float = TOLERATED
    search_space: int = SPACE
    selects: Selects = Selects.GUARANTEED
    guarantees: Guarantees = Guarantees.FITTING
    margin: float | None = None  # None: learned
    keep_promises: float = KEEP
    whole_leases: bool = False
    rounds_up: bool = True
    be_floor: float = 0.0
    spot: Spot = Spot.SRTF
    slots: Slots = Slots.EARLY
    trials: Trials = Trials.PARTITION
    selector: Selector = Selector.PREFIX
    solver_s: float = SOLVER_S
    placed_anew: bool = False
    slo_quotas: Mapping[str, int] | None = None
    team_quotas: Mapping[str, int] | None = None
    team_limits: Mapping[str, int] | None = None
    team_jobs: Mapping[str, int] | None = None
    quota_unit: QuotaUnit = QuotaUnit.GPUS
    fair: bool = False
    team_shares: Mapping[str, float] | None = None
    half_life_s: float = HALF_LIFE_S
    profile_s: float = PROFILE_S
    profile_floor: int = FLOOR
    submit_gpus: int | None = None
    size: Sizing | None = None  # None: the preset's own
    reclaim: Reclaiming | None = None  # likewise
    min_run: float = 0.0  # times what a pause and a resume cost
    hysteresis: float = 0.0  # likewise
    max_preemptions: int | None = None
    aging: float = 0.0
    cooldown_s: float = 0.0
    foresight: bool = False
    queue_floor: QueueFloor | None = None
    keep_gpus_s: float = 0.0
    suspend: SuspendRules | None = None
    suspend_guests_s: float = SuspendRules().guest_s

    @property
    def suspends(self) -> SuspendRules | None:
        """The rules by which jobs leave their GPUs without a save; None: none does."""
        if self.suspend is None:
            return None
        return self.suspend._replace(guest_s=self.suspend_guests_s)

    @property
    def guards(self) -> Guards:
        """Whom the order may not preempt."""
        return Guards(self.min_run, self.max_preemptions, self.hysteresis, self.cooldown_s)

    @property
    def profiles(self) -> TrialRules:
        """How jobs are profiled, if they are."""
        return TrialRules(
            profile_s=self.profile_s, floor=self.profile_floor, submit_gpus=self.submit_gpus
        )


PLACEMENTS = {
    placement.name: placement
    for placement in (
        *(CONSOLIDATE, SPREAD, COUNT, SKEW, ILP),
        *(HALVING, LOCAL_SEARCH, PATTERN, GROUPS, SKEW_GROUPS),
    )
}
_ORDERS = {order.value: order for order in (Discipline.REQUEUE, Discipline.FIRST_START)}
_KNOWLEDGE = {know.value: know for know in Know}
_TAKINGS = {
    "charged": Taking.BOUNDARY,
    "at-once": Taking.AT_ONCE,
    "suspend": Taking.SUSPEND,
    "free": Taking.FREE,
}
_SUSPENDS = {"off": None, "always": SuspendRules(), "cheaper": SuspendRules(only_cheaper=True)}


def parse(name: str, allowed: tuple[str, ...], words: Mapping[str, str]) -> PolicySettings:
    """The settings of policy `name`; raises PolicyError on a key it does not have, or a bad
    value.
    """
    chosen = PolicySettings()._replace(**read(name, allowed, words, _READERS))
    if chosen.place is LOCAL_SEARCH and chosen.search_space != SPACE:
        return chosen._replace(place=local_search_within(chosen.search_space))
    return chosen


def read(
    name: str,
    allowed: tuple[str, ...],
    words: Mapping[str, str],
    readers: Mapping[str, tuple[str, Callable[[str], object]]],
) -> dict[str, Any]:
    """The values of these words, by field; raises PolicyError like `parse`."""
    values: dict[str, Any] = {}
    for key, text in words.items():
        if key not in allowed:
            raise PolicyError(f"policy {name} has no setting {key!r}{suggestion(key, allowed)}")
        field, reader = readers[key]
        try:
            values[field] = reader(text)
        except ValueError as error:
            raise PolicyError(f"setting {key}={text}: {error}") from error
    return values


def suggestion(word: str, known: tuple[str, ...]) -> str:
    """`; did you mean ...?` or what there is."""
    from difflib import get_close_matches  # a master starts without it

    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f" (there are: {', '.join(sorted(known))})"


def one_of(choices: Mapping[str, object]) -> Callable[[str], object]:
    """A reader of these words."""

    def chosen(text: str) -> object:
        if text not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return choices[text]

    return chosen


def _or_word(
    words: Mapping[str, float | None], read: Callable[[str], float]
) -> Callable[[str], object]:
    """A reader of these words, and of what `read` takes."""
    return lambda text: words[text] if text in words else read(text)


def _thresholds(text: str) -> Thresholds:
    parts = text.split(",")
    if not text.startswith("q"):
        return Thresholds(tuple(_positive(part) for part in parts))
    shares = tuple(_positive(part.removeprefix("q")) for part in parts)
    if list(shares) != sorted(set(shares)) or shares[-1] >= 1.0:
        raise ValueError("quantiles must rise between 0 and 1, such as q0.5,q0.9")
    return Thresholds(tuple(3200.0 * 10**place for place in range(len(shares))), shares)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0.0 < value < float("inf"):
        raise ValueError("expected a positive number")
    return value


def _share(text: str) -> float:
    value = 0.0 if text == "0" else _positive(text)
    if value > 1.0:
        raise ValueError("expected a number from 0 to 1")
    return value


def _kept(text: str) -> float:
    value = _positive(text)
    if not 0.5 <= value < 1.0:
        raise ValueError("expected a number from 0.5 to below 1, such as 0.99")
    return value


def _packlimit(text: str) -> float | None:
    if text == "learned":
        return None
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0.0 <= limit <= 1.0:
        raise ValueError("expected a share of the model from 0 to 1, or learned")
    return limit


def _gpus_by_team(text: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for part in text.split(","):
        team, colon, gpus = part.partition(":")
        if not (team and colon) or not gpus.isdecimal():
            raise ValueError("expected TEAM:GPUS,..., such as vision:64,nlp:32; * is every other")
        if team in found:
            raise ValueError(f"team {team!r} is named twice")
        found[team] = int(gpus)
    return found


def _weights(text: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        team, colon, weight = part.rpartition(":")
        if not (team and colon):
            raise ValueError("expected TEAM:WEIGHT,..., such as vision:2,nlp:1; * is every other")
        if team in found:
            raise ValueError(f"team {team!r} is named twice")
        found[team] = _positive(weight)
    return found


def _slowdown(text: str) -> float:
    times = _positive(text)
    if times <= 1.0:
        raise ValueError("expected more than 1, such as 1.05 for 5 % slower")
    return times


def _trial(text: str) -> float:
    seconds = _positive(text)
    if seconds > WINDOW_S:
        raise ValueError(f"expected at most {WINDOW_S:g} seconds")
    return seconds


def whole(text: str) -> int:
    """A number of things, or none."""
    if not text.isdecimal():
        raise ValueError("expected a whole number from 0 on")
    return int(text)


def count(text: str) -> int:
    """A number of things, at least one."""
    if not text.isdecimal() or not int(text):
        raise ValueError("expected a whole number from 1 on")
    return int(text)


_READERS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "order": ("order", one_of(_ORDERS)),
    "thresholds": ("thresholds", _thresholds),
    "place": ("place", one_of(PLACEMENTS)),
    "packlimit": ("packlimit", _packlimit),
    "pack": ("pack", one_of({pack.value: pack for pack in Pack})),
    "predict": ("predicts", one_of({"off": False, "on": True})),
    "tolerate": ("tolerated_slowdown", _slowdown),
    "preempt": ("preempt", one_of(_TAKINGS)),
    "search": ("search_space", count),
    "size": ("size", one_of(SIZINGS)),
    "reclaim": ("reclaim", one_of(RECLAIMS)),
    "index": ("gittins_index", one_of({index.value: index for index in Index})),
    "last": ("last", one_of({last.value: last for last in Last})),
    "quantum": ("quantum_gpu_s", _positive),
    "refresh": ("refresh", count),
    "know": ("know", one_of(_KNOWLEDGE)),
    "fairness": ("fairness", _share),
    "errors": ("errors", _share),
    "sizes": ("chooses_sizes", one_of({"asked": False, "chosen": True})),
    "plan": ("by_program", one_of({"greedy": False, "program": True})),
    "quota": ("quotas", quotas.parsed),
    "promote_knob": ("promote_knob", _or_word({"off": None}, _positive)),
    "starve_limit_s": ("starve_limit_s", _or_word({"off": None}, _positive)),
    "select": ("selects", one_of({choice.value: choice for choice in Selects})),
    "guarantee": ("guarantees", one_of({choice.value: choice for choice in Guarantees})),
    "margin": ("margin", _or_word({"learned": None, "0": 0.0}, _positive)),
    "keep_promises": ("keep_promises", _kept),
    "selector": ("selector", one_of({choice.value: choice for choice in Selector})),
    "solver_s": ("solver_s", _or_word({"0": 0.0}, _positive)),
    "rearrange": ("placed_anew", one_of({"off": False, "cycle": True})),
    "spot": ("spot", one_of({choice.value: choice for choice in Spot})),
    "slots": ("slots", one_of({choice.value: choice for choice in Slots})),
    "trials": ("trials", one_of({choice.value: choice for choice in Trials})),
    "be_floor": ("be_floor", _share),
    "round_up": ("rounds_up", one_of({"on": True, "off": False})),
    "deadlines": ("whole_leases", one_of({"exact": False, "whole-leases": True})),
    "slo_quota": ("slo_quotas", _gpus_by_team),
    "team_quota": ("team_quotas", _gpus_by_team),
    "share": ("fair", one_of({"none": False, "fair": True})),
    "team_share": ("team_shares", _weights),
    "half_life_s": ("half_life_s", _positive),
    "team_jobs": ("team_jobs", _gpus_by_team),
    "team_limit": ("team_limits", _gpus_by_team),
    "quota_unit": ("quota_unit", one_of({unit.value: unit for unit in QuotaUnit})),
    "profile_s": ("profile_s", _trial),
    "profile_floor": ("profile_floor", whole),
    "submit_gpus": ("submit_gpus", _or_word({"off": None}, count)),
    "min_run": ("min_run", _or_word({"0": 0.0, "off": 0.0}, _positive)),
    "hysteresis": ("hysteresis", _or_word({"0": 0.0, "off": 0.0}, _positive)),
    "suspend": ("suspend", one_of(_SUSPENDS)),
    "suspend_guests_s": ("suspend_guests_s", _positive),
    "max_preemptions": ("max_preemptions", _or_word({"off": None}, count)),
    "aging": ("aging", _or_word({"off": 0.0}, _share)),
    "foresight": ("foresight", one_of({"off": False, "on": True})),
    "cooldown_s": ("cooldown_s", _or_word({"0": 0.0, "off": 0.0}, _positive)),
    "queue_floor": ("queue_floor", quotas.parsed_floor),
    "keep_gpus_s": ("keep_gpus_s", _or_word({"0": 0.0, "off": 0.0}, _positive)),
    "promote_to": ("promote_to", one_of({to.value: to for to in PromoteTo})),
}
