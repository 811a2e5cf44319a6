"""`--set key=value`: the policies' own settings, each with the world that it is replayed in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlq_common.text.suggest import did_you_mean
from dlq_master.model.lease import Terms
from dlq_master.policy.policy import Policy
from dlq_master.policy.priced.names import DEFAULT
from dlq_master.policy.registry.presets import PRESETS
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_master.policy.transit.taking import Taking
from dlq_simulator.errors import UsageError
from dlq_simulator.history import read_history
from dlq_simulator.priced.settings import KNOWN, NAMES, PricedSettings, priced_settings, rents
from dlq_simulator.queues import QUEUES
from dlq_simulator.world.knowledge import Knowledge
from dlq_simulator.world.speed import Speed
from dlq_simulator.world_settings import (
    MOVES,
    PROFILING,
    WORLD,
    MoveSettings,
    costs,
    knowledge,
    moves,
    speed,
    terms,
)

HISTORY, QUEUED_BY, TEAMS_BY = "history", "queues", "teams"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """One policy, and the world that it is replayed in.

    A job whose GPUs are taken stops `save_s` before its boundary and holds its GPUs until then. It
    makes no progress in the first `resume_s` of its next start. Both are 0, and nothing is ever
    lost, if preemption is `free`.
    """

    policy: Policy
    free: bool
    terms: Terms
    save_s: float
    resume_s: float
    speed: Speed
    knowledge: Knowledge
    queues: str = "class"  # the column of a row's queue, for a policy with quotas or a floor
    teams: str = "user"  # the column of its team, for a policy that knows teams
    moves: MoveSettings = MOVES


def read_settings(
    names: Sequence[str], assignments: Sequence[str], seed: int = 0
) -> list[ReplaySettings]:
    """The named policies, each with its known settings; as `read_all`, without those that rent
    nodes.
    """
    words = _checked(names, PRESETS, assignments)
    return [_settings(name, words, seed) for name in names]


def read_all(
    names: Sequence[str],
    assignments: Sequence[str],
    seed: int = 0,
    *,
    rented_only: bool = False,
) -> list[ReplaySettings | PricedSettings]:
    """The named policies, each with the settings that it knows. `rented_only`: all nodes are rented
    by need.

    A setting that none of them knows is a UsageError, so that one `--set` may serve a comparison
    and a slip is still found.
    """
    default = (DEFAULT,) if rented_only else ()
    there_are = dict.fromkeys((*default, *PRESETS, *NAMES))
    words = _checked(names, there_are, assignments, rented_only)
    return [
        priced_settings(name, words, seed)
        if rents(name, rented_only)
        else _settings(name, words, seed)
        for name in names
    ]


def _checked(
    names: Sequence[str],
    there_are: Iterable[str],
    assignments: Sequence[str],
    rented_only: bool = False,
) -> dict[str, str]:
    """The settings as words, for policies that there are."""
    every = tuple(there_are)
    for name in names:
        if name not in every:
            raise UsageError(
                f"there is no policy {name!r}{did_you_mean(name, every)}",
                f"dlq simulates {', '.join(every)}",
                "choose one of them",
            )
    words = _words(assignments)
    known = sorted({*WORLD, *(key for name in names for key in _known(name, rented_only))})
    for key in words:
        if key not in known:
            raise UsageError(
                f"unknown setting {key!r}{did_you_mean(key, known)}",
                f"{', '.join(names)} can be told {', '.join(known)}",
                "correct --set",
            )
    return words


def _known(name: str, rented_only: bool = False) -> tuple[str, ...]:
    """The settings of the policy here; a master may not read a file for one."""
    if rents(name, rented_only):
        return KNOWN[name]
    preset = PRESETS[name]
    profiling = PROFILING if "know" in preset.settings else ()
    own = (
        *([HISTORY] if preset.by_service else []),
        *([QUEUED_BY] if {"quota", "queue_floor"} & {*preset.settings} else []),
    )
    own = (*own, *([TEAMS_BY] if "team_quota" in preset.settings else []))
    return (*preset.settings, *profiling, *own)


def _words(assignments: Sequence[str]) -> dict[str, str]:
    words: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key or not value:
            raise UsageError(
                f"cannot read --set {assignment!r}",
                "it is not KEY=VALUE",
                "write for example --set place=count",
            )
        if key in words:
            why = f"it was {key}={words[key]} before"
            raise UsageError(f"cannot use --set {assignment!r}", why, "give each key once")
        words[key] = value
    return words


def _settings(name: str, words: Mapping[str, str], seed: int) -> ReplaySettings:
    chosen = {key: value for key, value in words.items() if key in PRESETS[name].settings}
    cost_s = costs({**PRESETS[name].replayed, **words})
    try:
        policy = build(name, chosen, _history(name, words))
    except PolicyError as error:
        raise UsageError(f"cannot simulate {name!r}", str(error), "correct --set") from error
    grid = terms(cost_s) if policy.promises is None else terms(cost_s, policy.promises.slot_terms)
    free = not policy.grid
    if policy.taking is Taking.NEVER and policy.resizing is not Taking.BOUNDARY:
        # Every term would be renewed: without a grid the same work starts at the same instants.
        policy = replace(policy, grid=False)
    return ReplaySettings(
        policy=policy,
        free=free,
        terms=grid,
        save_s=0 if free else cost_s["save_s"],
        resume_s=0 if free else cost_s["resume_s"],
        speed=speed(words),
        knowledge=knowledge(policy, words, seed),
        queues=_one_of(words, QUEUED_BY, "class", tuple(QUEUES)),
        moves=moves(words),
        teams=_one_of(words, TEAMS_BY, "user", ("user", "vc")),
    )


def _history(name: str, words: Mapping[str, str]) -> list[float]:
    told = HISTORY in words and HISTORY in _known(name)
    return read_history(words[HISTORY]) if told else []


def _one_of(words: Mapping[str, str], key: str, default: str, choices: Sequence[str]) -> str:
    by = words.get(key, default)
    if by not in choices:
        raise UsageError(
            f"cannot read --set {key}={by}",
            f"expected one of {', '.join(choices)}",
            "correct --set",
        )
    return by
