"""Variants of a policy for callers that must not wait for a solver, such as a master's loop.

Most plans take microseconds. The others solve integer programs, or plan promises over days of
slots. The variants are:

- `trapped`: raises `Elsewhere` where such work would begin; any other decision is the policy's own;
- `waiting`: keeps promises as they are, and raises for other long work;
- `plain`: never takes long. It keeps promises, makes no new ones, and places jobs by first fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from dlq_master.model.nodes.free_gpus import Parts, Pool
from dlq_master.model.resources import Shape
from dlq_master.policy.elsewhere import Elsewhere, Stage
from dlq_master.policy.place.packing.class_packing import PackedClasses, widest_first
from dlq_master.policy.place.packing.joint import Joint
from dlq_master.policy.place.placement import Find, Placement
from dlq_master.policy.policy import Policy
from dlq_master.policy.promise.capacity.rules import DeadlinesDecided, Selector
from dlq_master.policy.size.choices import KNAPSACK, KNAPSACK_EXACT


def trapped(policy: Policy) -> Policy:
    """The policy that raises `Elsewhere` where long work would begin."""
    place = policy.placement
    if place.arranges is not None:
        place = place._replace(arranges=_elsewhere)
    if place.repacks:
        place = place._replace(pack=_pack_or_raise)
    if place.balances:
        place = place._replace(find=_on_one_node(place))
    sizing = policy.sizing
    if sizing is KNAPSACK_EXACT:
        sizing = sizing._replace(grow=_elsewhere)
    return _decided(replace(policy, placement=place, sizing=sizing), DeadlinesDecided.ELSEWHERE)


def waiting(policy: Policy) -> Policy:
    """The trapped policy that makes no decisions about promises for now."""
    return _decided(trapped(policy), DeadlinesDecided.LATER)


def plain(policy: Policy) -> Policy:
    """The policy without all that may take long."""
    place = policy.placement._replace(arranges=None, repacks=False, balances=False)
    sizing = KNAPSACK if policy.sizing is KNAPSACK_EXACT else policy.sizing
    return _decided(replace(policy, placement=place, sizing=sizing), DeadlinesDecided.KEPT)


def offering(policy: Policy) -> Policy:
    """The policy that adds offers to refusals of deadlines."""
    rules = policy.promises
    return policy if rules is None else replace(policy, promises=replace(rules, offers=True))


def timed(policy: Policy, clock: Callable[[], float]) -> Policy:
    """The policy whose integer program measures time by this clock (`promise.solver.budget`)."""
    rules = policy.promises
    return policy if rules is None else replace(policy, promises=replace(rules, clock=clock))


def hurried(policy: Policy) -> Policy:
    """The policy without integer programs for promises."""
    rules = policy.promises
    if rules is None or rules.selector is Selector.PREFIX:
        return policy
    settings = {**policy.settings, "solver_s": "0"}
    return replace(policy, promises=replace(rules, solver_s=0.0), settings=settings)


def may_take_long(policy: Policy) -> bool:
    """Whether any plan of this policy is ever made elsewhere."""
    exact = policy.sizing is KNAPSACK_EXACT
    return policy.placement.solves or exact or policy.promises is not None


def _decided(policy: Policy, decided: DeadlinesDecided) -> Policy:
    rules = policy.promises
    return policy if rules is None else replace(policy, promises=replace(rules, decided=decided))


def _elsewhere(*_asked: object) -> NoReturn:
    raise Elsewhere(Stage.PLAN)


def _pack_or_raise(joint: Joint) -> PackedClasses:
    """Mostly the widest first will do; or it is certain at once that nothing does."""
    if sum(member.gpus for member in joint.members) > sum(joint.free):
        return PackedClasses(None)
    found = widest_first(joint)
    return _elsewhere() if found is None else PackedClasses(found)


def _on_one_node(placement: Placement) -> Find:
    """A job on one node has no network to balance."""

    def find(pool: Pool, shape: Shape) -> Parts | None:
        parts = placement.find(pool, shape)
        return _elsewhere() if parts is not None and len(parts) > 1 else parts

    return find
