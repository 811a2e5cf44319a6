"""The policy that decides: the file's, or one that an admin has set since.

The choice is a value in the database, so that a master that starts again goes on with it. An
agent's restart or a silent line changes nothing. When the master restarts, an admin's choice
stands, and a choice of the file follows the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError, IllegalTransition, InvalidRequest, TryAgain
from dlq_master.control.config import MasterConfig
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import State, Turn
from dlq_master.control.placement import usage
from dlq_master.control.placement.team_words import team_words
from dlq_master.control.pool_config import node_type
from dlq_master.control.stimuli import PolicySet, SetPolicy
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.order import Ordering
from dlq_master.policy.adopt import adopt, dropped, endangered, on_trial
from dlq_master.policy.offload import offering
from dlq_master.policy.policy import Know, Policy
from dlq_master.policy.priced.names import RENTS
from dlq_master.policy.registry.presets import PRESETS
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_master.policy.rent.stage import RentMethod
from dlq_master.store.tables.chosen_policy import CHOSEN, Chosen, read_chosen, written
from dlq_master.store.tables.tenants import OPEN_GRANTS, Team

NO_FLOOR: Mapping[str, str] = MappingProxyType({})
LISTED = 10  # jobs that a refusal names

_log = get_logger("master.policies")


def policy_of(config: MasterConfig) -> Policy:
    """The configured preset. Raises ConfigError naming what is wrong with it."""
    return _filed(config)


def _filed(config: MasterConfig, teams: Iterable[Team] = ()) -> Policy:
    scheduler, words = config.scheduler, config.interactive.floor_words
    return _renting(config, live_policy(scheduler.policy, scheduler.settings, teams, words))


def live_policy(
    name: str,
    settings: Mapping[str, str],
    teams: Iterable[Team] = (),
    floor: Mapping[str, str] = NO_FLOOR,
) -> Policy:
    """A preset as a master may run it, with what is told of teams, and the floor of interactive
    jobs. Raises ConfigError naming what is wrong.

    A policy that uses run times takes those of users (`know=unknown`). One that promises deadlines
    also takes measured ones (`know=profiled`), unless a setting says otherwise.
    """
    for key in ("place", "preempt"):
        if settings.get(key) in ("count", "free"):
            raise ConfigError(
                f"scheduler.settings.{key} = {settings[key]!r} is for simulations only"
            )
    if name in RENTS:
        raise ConfigError(
            f"scheduler.policy = {name!r} rents nodes by their prices, and a master's nodes have "
            "none: it is for dlq simulate, with a [[catalogue]]"
        )
    preset = PRESETS.get(name)
    if preset is not None and preset.simulated:
        raise ConfigError(
            f"scheduler.policy = {name!r} is for simulations only: {preset.simulated}"
        )
    words = dict(settings)
    if preset is not None:
        told = team_words(teams) | dict(floor)
        words = {key: text for key, text in told.items() if key in preset.settings} | words
    if preset is not None and "know" in preset.settings:
        words.setdefault("know", (Know.PROFILED if preset.promises else Know.UNKNOWN).value)
    try:
        policy = offering(build(name, words))
    except ValueError as error:
        raise ConfigError(f"scheduler: {error}") from None
    if policy.know is Know.KNOWN:
        raise ConfigError(
            "scheduler.settings.know = 'known': how long every job will run only a simulation can "
            f"tell; leave it out, and {name!r} goes by what users say"
        )
    if policy.know is Know.PROFILED and policy.profile_s is None:
        raise ConfigError(
            f"scheduler.settings.know = 'profiled': {name!r} measures nobody; leave it out, and it "
            "goes by what users say and jobs tell of their steps"
        )
    return policy


def choose(
    config: MasterConfig, stored: str | None, now_s: float, teams: Sequence[Team] = ()
) -> tuple[Policy, Chosen]:
    """The policy of a starting master: the admin's choice if it is still valid, else the file's.

    Raises ConfigError if the file is wrong.
    """
    filed = _filed(config, teams)
    said = Chosen(config.scheduler.policy, dict(config.scheduler.settings), "", now_s)
    known = None if stored is None else read_chosen(stored)
    if known is None:
        return filed, said
    if not known.by:
        return filed, known if known.same(said) else said
    try:
        words = config.interactive.floor_words
        return _renting(config, live_policy(known.policy, known.settings, teams, words)), known
    except ConfigError as error:
        _log.error("policy_not_understood", policy=known.policy, cause=error.what)
        return filed, said


def _set_before(turn: Turn, _ask: SetPolicy, word: str) -> PolicySet:
    return PolicySet(turn.state.placement.chosen, tuple(JobId(int(each)) for each in word.split()))


@once(_set_before)
def set_policy(turn: Turn, ask: SetPolicy) -> Done[PolicySet]:
    """Let another policy decide from this turn on.

    Refused, unless forced, when that would drop promises; each owner is told of those that are.
    """
    state = turn.state
    wanted, policy = _asked(turn, ask)
    _check_grants(state, wanted.policy)
    gone = () if wanted.same(state.placement.chosen) else _change(turn, ask, wanted, policy)
    state.placement.chosen = wanted
    turn.batch.meta[CHOSEN] = written(wanted)
    return Done(PolicySet(wanted, gone), " ".join(map(str, gone)))


def retune(turn: Turn, teams: Mapping[str, Team]) -> None:
    """Give the same policy new rules of teams, from this turn on; running jobs go on.

    Raises TryAgain, and has changed nothing, while that cannot be done.
    """
    state = turn.state
    chosen, words = state.placement.chosen, state.config.interactive.floor_words
    policy = live_policy(chosen.policy, chosen.settings, teams.values(), words)
    policy = _renting(state.config, policy)
    before, after = state.policy.ordering, policy.ordering
    if _lines(before) == _lines(after):
        state.policy = policy
    else:
        _no_trials(state)
        turn.take_batch()  # of the cluster as it was
        left, adopted = state.cluster, adopt(state.cluster, before, policy)
        state.cluster, state.policy = adopted.cluster, policy
        _carry_usage(state, left)
        turn.batch.jobs += adopted.changed
    state.placement.last = None
    state.placement.forget_decisions()
    turn.plan_due = True


def take_over(state: State, stored: Policy | None) -> tuple[list[Job], list[JobId]]:
    """A starting master goes by another policy than the one before it: jobs that have another value
    now, and whose promises ended by that. `stored`: the stored choice; None: nobody can tell any
    more.
    """
    gone = dropped(state.cluster.jobs.values(), state.policy)
    ordering = None if stored is None else stored.ordering
    adopted = adopt(state.cluster, ordering, state.policy)
    state.cluster = adopted.cluster
    return list(adopted.changed), gone


# --- helpers, in order of use ---------------------------------------------------------------------


def _renting(config: MasterConfig, policy: Policy) -> Policy:
    """The policy with the choice of machines that the pools of master.toml allow. Raises
    ConfigError.
    """
    if not config.pools:
        return policy
    from dlq_master.policy.registry.renting import build_live as build_method

    try:
        solver = build_method(config.renting.policy, config.renting.settings)
    except PolicyError as error:
        raise ConfigError(f"renting.policy: {error}", key="renting.policy") from None
    types = tuple(node_type(pool) for pool in config.pools)
    return replace(policy, renting=RentMethod(types, solver))


def _asked(turn: Turn, ask: SetPolicy) -> tuple[Chosen, Policy]:
    scheduler = turn.state.config.scheduler
    name = scheduler.policy if ask.from_file else ask.policy
    settings = scheduler.settings if ask.from_file else dict(ask.settings)
    by = "" if ask.from_file else ask.caller.name
    try:
        words = turn.state.config.interactive.floor_words
        policy = live_policy(name, settings, turn.state.people.teams.values(), words)
    except ConfigError as error:
        raise InvalidRequest(error.what, field="policy") from None
    policy = _renting(turn.state.config, policy)
    return Chosen(name, dict(settings), by, turn.now_s), policy


def _check_grants(state: State, policy: str) -> None:
    """IllegalTransition for a policy under which guests of other organisations had no limits."""
    found = [one for one in state.people.grants.values() if one.state in OPEN_GRANTS]
    if found and "team_quota" not in PRESETS[policy].settings:
        named = ", ".join(sorted(one.organisation for one in found)[:LISTED])
        raise IllegalTransition(
            f"policy {policy} knows no limits of teams, and the guests of {named} have some",
            hint="dlq admin grants revoke ends a grant",
        )


def _jobs_have(count: int) -> str:
    return "1 job has" if count == 1 else f"{count} jobs have"


def _change(turn: Turn, ask: SetPolicy, wanted: Chosen, policy: Policy) -> tuple[JobId, ...]:
    state = turn.state
    _no_trials(state)
    at_stake = endangered(state.cluster, state.policy.promises, policy.promises)
    if at_stake and not ask.force:
        raise IllegalTransition(
            f"{_jobs_have(len(at_stake))} promises that {wanted.policy!r} would not keep: "
            f"{_listed(at_stake)}",
            hint="with --force it is done all the same, and their owners are told",
            jobs=len(at_stake),
        )
    gone = dropped(state.cluster.jobs.values(), policy)
    turn.take_batch()  # of the cluster as it was
    left, adopted = state.cluster, adopt(state.cluster, state.policy.ordering, policy)
    before, state.cluster, state.policy = state.placement.chosen, adopted.cluster, policy
    _carry_usage(state, left)
    state.placement.last = state.placement.fault = None
    state.placement.forget_decisions()
    turn.batch.jobs += adopted.changed
    turn.plan_due = True
    announce(turn, ask.caller.actor, before, wanted, gone)
    return tuple(gone)


def _lines(ordering: Ordering) -> tuple[object, ...]:
    """The parts of an order that depend on the rules of teams."""
    return ordering.by_team, ordering.by_member, ordering.half_life_s


def _no_trials(state: State) -> None:
    tried = on_trial(state.cluster)
    if tried:
        raise TryAgain(
            f"job {_listed(tried)} is being profiled; its trial ends in a few minutes",
            retry_after_s=60,
        )


def announce(turn: Turn, actor: str, before: Chosen, wanted: Chosen, gone: list[JobId]) -> None:
    """Say it to everybody, and to each owner what it means for them."""
    turn.note(
        "policy_set",
        actor=actor,
        policy=wanted.policy,
        settings=wanted.words,
        before=before.policy,
        promises_dropped=len(gone),
    )
    for job_id in gone:
        cause = f"the policy is {wanted.policy} now, which promises no deadlines"
        turn.note("promise_dropped", job_id=job_id, actor=actor, cause=cause)


def _listed(job_ids: list[JobId]) -> str:
    more = f" and {len(job_ids) - LISTED} more" if len(job_ids) > LISTED else ""
    return ", ".join(map(str, job_ids[:LISTED])) + more


def _carry_usage(state: State, left: Cluster) -> None:
    """The usage of accounts outlives a policy that counts no shares."""
    kept = usage.carry_over(state.cluster, left, state.placement.kept_shares)
    state.placement.kept_shares = kept
