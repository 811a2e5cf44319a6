"""Reclaims of servers: the choice of servers, the effects on jobs, and the time until they are
empty.

The policy chooses the servers, and the core plans the effects on jobs (policy/reclaim). This module
tells a plan and carries it out. A thread makes a long choice outside of the loop. It counts only
if the servers and their jobs are still the same.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dlq_common.errors import Conflict, IllegalTransition, NotFound
from dlq_common.text.units import format_span
from dlq_master.control.loans import loans
from dlq_master.control.loans.reclaim_hits import clipped, hits_of, left_s, words_of
from dlq_master.control.loans.state import PlannedReclaim
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.ports import StimulusSink
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement import execution
from dlq_master.control.placement.execution import look
from dlq_master.control.stimuli.loans import Found, Hit, Reclaimed, ReclaimServers, ToChoose
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.attempt_steps import sooner
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.transitions import StopCause
from dlq_master.policy.reclaim.choices import ALGORITHM_1
from dlq_master.policy.reclaim.demand import Choice, Demand
from dlq_master.policy.reclaim.tenants import gives_up
from dlq_master.policy.reclaim.whitelist import (
    TakenServers,
    demand_of,
    dice,
    is_asked_back,
    is_lent,
    taking,
)
from dlq_master.store.tables.codec import decode, encode

# Of a choice that takes long, while the cluster changes; then one that is found at once.
TRIES = 3
_AGAIN = "plan again: the plan would now do something else"


class WantedServers(NamedTuple):
    """`fewer` of `there` are to go; `lending` are not lent after all, `leaving` are asked back
    already.
    """

    there: tuple[NodeId, ...]
    fewer: int
    lending: tuple[NodeId, ...] = ()
    leaving: tuple[NodeId, ...] = ()


def _known(_turn: Turn, _ask: ReclaimServers, word: str) -> Reclaimed | ToChoose:
    return decode(word, Reclaimed)


@once(_known)
def reclaim(turn: Turn, ask: ReclaimServers) -> Reclaimed | ToChoose | Done[Reclaimed | ToChoose]:
    """Ask servers back, or tell what that would do. A plan alone has no request id."""
    if ask.token and (ask.token in turn.state.loans.plans or not (ask.node_ids or ask.count)):
        return _as_planned(turn, ask)
    wanted = _wanted(turn, ask)
    view, policy = look(turn), turn.state.policy
    demand = demand_of(view, policy.reclaiming, wanted.there, wanted.fewer)
    basis = _basis(wanted, demand)
    choice = _chosen(turn, ask, demand, basis)
    if choice is None:
        return ToChoose(demand, partial(_choose, policy.reclaim.choose, dice(view)), basis)
    taken = taking(view, policy.reclaiming, demand, choice)
    if ask.plan_only:
        return _plan(turn, ask, wanted, taken, Found(choice, basis), demand)
    if ask.token and ask.token != _token(turn, ask, wanted, taken, basis):
        raise Conflict(
            f"the cluster is not as it was when plan {ask.token} was made, or something else was "
            "asked",
            hint=_AGAIN,
        )
    return _do(turn, ask, ask, wanted, taken)


async def ask_back(control: StimulusSink, ask: ReclaimServers) -> Reclaimed:
    """The effects of the reclaim, done or planned. A choice counts if the cluster is still as it
    was when it was asked for.
    """
    for _ in range(TRIES):
        answer = await control.ask(ask)
        if isinstance(answer, Reclaimed):
            return answer
        assert isinstance(answer, ToChoose)
        choice = await asyncio.to_thread(answer.choose, answer.demand)
        ask = replace(ask, found=Found(choice, answer.basis))
    answer = await control.ask(replace(ask, hurry=True))
    assert isinstance(answer, Reclaimed)
    return answer


# --- helpers, in order of use ---------------------------------------------------------------------


def _as_planned(turn: Turn, ask: ReclaimServers) -> Done[Reclaimed | ToChoose]:
    """Do the plan of a token, or nothing."""
    planned = turn.state.loans.plans.get(ask.token)
    if planned is None:
        raise NotFound(
            f"there is no plan {ask.token} (any more): it is kept until the master restarts or "
            "many others are made",
            kind="plan",
            id=ask.token,
            hint="say beside the token what was asked then, --count 2 --token TOKEN; or plan again",
        )
    asked = planned.ask
    if ask.node_ids or ask.count:
        said = (ask.node_ids, ask.count, ask.within_s, ask.force)
        if said != (asked.node_ids, asked.count, asked.within_s, asked.force):
            raise Conflict(f"plan {ask.token} was made for something else", hint=_AGAIN)
    try:
        wanted = _wanted(turn, asked)
    except IllegalTransition as error:
        raise Conflict(_changed(ask.token, error.what), hint=_AGAIN) from error
    view, policy = look(turn), turn.state.policy
    demand = demand_of(view, policy.reclaiming, wanted.there, wanted.fewer)
    if _basis(wanted, demand) != planned.found.basis:
        raise Conflict(_changed(ask.token, _difference(planned.demand, demand)), hint=_AGAIN)
    taken = taking(view, policy.reclaiming, demand, planned.found.choice)
    if _effects(turn, asked, wanted, taken) != planned.effects:
        raise Conflict(f"plan {ask.token} would do something else to jobs by now", hint=_AGAIN)
    return _do(turn, ask, asked, wanted, taken)


def _wanted(turn: Turn, ask: ReclaimServers) -> WantedServers:
    cluster = turn.state.cluster
    lent = [one.node_id for one in loans.servers(turn) if is_lent(cluster, one.node_id)]
    lending = [one.node_id for one in loans.servers(turn) if NodeFlag.LENDING in one.flags]
    if not ask.node_ids:
        if ask.count > len(lent) + len(lending):
            raise IllegalTransition(
                f"{ask.count} servers are asked back, and {len(lent) + len(lending)} are lent",
                hint="dlq admin loan status shows each; nothing was asked back",
                lent=len(lent) + len(lending),
            )
        first = tuple(lending[: ask.count])
        return WantedServers(tuple(lent), ask.count - len(first), first)
    named = dict.fromkeys(ask.node_ids)
    for node_id in named:
        loans.must_be_server(turn.node(node_id))
    there = tuple(sorted(named.keys() & set(lent)))
    back = tuple(sorted(name for name in named if is_asked_back(cluster, name)))
    return WantedServers(there, len(there), tuple(sorted(named.keys() & set(lending))), back)


def _basis(wanted: WantedServers, demand: Demand) -> str:
    """Digest of the servers and their jobs: the basis of a choice, without the parts that change
    with time.
    """
    tenants = [one._replace(lost_gpu_s=0.0) for one in demand.tenants]
    return _digest(wanted, dict(demand.servers), demand.wanted, tenants)


def _chosen(turn: Turn, ask: ReclaimServers, demand: Demand, basis: str) -> Choice | None:
    """The servers that go; None: that takes long."""
    rule = turn.state.policy.reclaim
    if ask.found is not None and ask.found.basis == basis:
        return ask.found.choice
    if demand.wanted >= len(demand.servers):
        cost = demand.cost(demand.servers)
        return Choice(tuple(demand.servers), cost, cost)
    if not rule.solves or demand.wanted <= len(demand.free()):
        return rule.choose(demand, dice(look(turn)))
    return ALGORITHM_1.choose(demand, dice(look(turn))) if ask.hurry else None


def _choose(rule: object, random: object, demand: Demand) -> Choice:
    return rule(demand, random)  # type: ignore[operator,no-any-return] # a rule's own type, bound


def _plan(
    turn: Turn,
    ask: ReclaimServers,
    wanted: WantedServers,
    taken: TakenServers,
    found: Found,
    demand: Demand,
) -> Reclaimed:
    answer = _answer(turn, ask, wanted, taken)
    effects = _effects(turn, ask, wanted, taken)
    token = _token(turn, ask, wanted, taken, found.basis)
    asked = replace(ask, plan_only=False, request_id="", found=None, hurry=False)
    turn.state.loans.keep(token, PlannedReclaim(asked, found, demand, effects))
    return answer._replace(token=token)


def _do(
    turn: Turn,
    ask: ReclaimServers,
    asked: ReclaimServers,
    wanted: WantedServers,
    taken: TakenServers,
) -> Done[Reclaimed | ToChoose]:
    """Do what `asked` asks, as the caller of `ask`."""
    answer = _answer(turn, asked, wanted, taken)
    if answer.too_long and not asked.force:
        raise _cannot(asked, answer, taken)
    plan = clipped(taken.plan, asked.within_s) if asked.force else taken.plan
    execution.check(turn, plan)
    actor = ask.caller.actor
    for node_id in wanted.lending:
        cleared = on_node.FlagCleared(flag=NodeFlag.LENDING)
        turn.step_node(node_id, cleared, actor=actor, cause="not lent after all")
    execution.carry_out(turn, plan, actor)
    for hit in answer.hits:
        if hit.action != "leaving":
            turn.note(
                "job_reclaimed",
                job_id=hit.job_id,
                actor=actor,
                cause=words_of(hit, answer.node_ids),
                action=hit.action,
                lost_s=round(hit.lost_s, 1),
                grace_s=round(hit.grace_s, 1),
            )
    if asked.force and asked.within_s is not None:
        _hasten(turn, answer.node_ids, asked.within_s, actor)
    loans.watch(turn)
    return Done(answer, encode(answer))


def _answer(
    turn: Turn, ask: ReclaimServers, wanted: WantedServers, taken: TakenServers
) -> Reclaimed:
    node_ids = (*wanted.lending, *wanted.leaving, *taken.choice.servers)
    hits = tuple(_hits(turn, ask, wanted, taken))
    promised_s = max((hit.grace_s for hit in hits), default=0.0)
    return Reclaimed(
        token="",
        node_ids=node_ids,
        hits=hits,
        promised_s=promised_s,
        proven=taken.choice.proven,
        too_long=ask.within_s is not None and promised_s > ask.within_s,
    )


def _hits(
    turn: Turn, ask: ReclaimServers, wanted: WantedServers, taken: TakenServers
) -> Iterator[Hit]:
    within_s = ask.within_s if ask.force else None
    gone = (*wanted.leaving, *taken.choice.servers)
    return hits_of(look(turn), taken.plan, gone, within_s)


def _token(
    turn: Turn, ask: ReclaimServers, wanted: WantedServers, taken: TakenServers, basis: str
) -> str:
    """Names what is done on a cluster like this: the same wherever that is the same."""
    return _digest(_effects(turn, ask, wanted, taken), basis)[:12]


def _effects(turn: Turn, ask: ReclaimServers, wanted: WantedServers, taken: TakenServers) -> str:
    """The effects on jobs, whenever they come."""
    hits = [
        (hit.job_id, hit.action, hit.gpus, hit.kept_gpus, hit.killed)
        for hit in _hits(turn, ask, wanted, taken)
    ]
    return _digest(wanted, taken.choice.servers, hits, ask.within_s, ask.force)


def _cannot(ask: ReclaimServers, answer: Reclaimed, taken: TakenServers) -> IllegalTransition:
    """Raised as the answer to what is asked too soon."""
    within_s = ask.within_s or 0.0
    slow = [hit for hit in answer.hits if hit.grace_s > within_s]
    named = ", ".join(str(hit.job_id) for hit in slow[:10])
    soonest = format_span(round(answer.promised_s))
    return IllegalTransition(
        f"within {format_span(round(within_s))} cannot be promised: jobs {named} may save for "
        f"longer; {len(taken.choice.servers)} servers can be promised within {soonest}",
        hint=f"--within {soonest}, or --force to end them after {format_span(round(within_s))}; "
        "nothing was asked back",
        promised_s=round(answer.promised_s),
    )


def _hasten(turn: Turn, node_ids: tuple[NodeId, ...], within_s: float, actor: str) -> None:
    """A job that leaves already and would take longer has until then, too."""
    cluster = turn.state.cluster
    keys = {key for node_id in node_ids for key in cluster.attempts_on(node_id)}
    for key in sorted(keys):
        attempt = cluster.attempts[key]
        if _gone_by(attempt, node_ids, turn.now_s + within_s):
            continue
        if attempt.stop_cause is None or left_s(attempt, turn.now_s) > within_s:
            stop = sooner(attempt, attempt.stop_cause or StopCause.RECLAIM, within_s)
            turn.step_attempt(key, stop, actor=actor, cause="the server is wanted by then")


def _gone_by(attempt: Attempt, node_ids: tuple[NodeId, ...], until_s: float) -> bool:
    """Whether its ranks there leave by then, while the others run on."""
    resize = attempt.resize
    if resize is None or not gives_up(attempt, set(node_ids)):
        return False
    return resize.due_s + resize.grace_s <= until_s


def _changed(token: str, why: str) -> str:
    return f"the cluster is not as it was when plan {token} was made: {why}"


def _difference(before: Demand, now: Demand) -> str:
    if before.servers.keys() != now.servers.keys():
        changed = before.servers.keys() ^ now.servers.keys()
        return f"servers are lent, or are not, that were not, or were: {', '.join(sorted(changed))}"
    was, are = ({one.job_id for one in demand.tenants} for demand in (before, now))
    came, went = ", ".join(map(str, sorted(are - was))), ", ".join(map(str, sorted(was - are)))
    words = [f"jobs {came} have come"] if came else []
    words += [f"jobs {went} have gone"] if went else []
    return "; ".join(words) or "jobs hold other GPUs, or other servers are asked back"


def _digest(*parts: object) -> str:
    return hashlib.sha256("\x00".join(map(repr, parts)).encode()).hexdigest()
