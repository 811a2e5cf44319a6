"""The traits of a shape that keep it out, were there GPUs enough: the choice of its user, or
containers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Shape
from dlq_master.model.traits import chosen, each_alone, has_all, runtime_of, too_small
from dlq_master.model.why import Reason, ReasonCode


def unmet(
    nodes: Collection[Node], shape: Shape, fits: Callable[[Shape], bool], *, ever: bool = False
) -> list[Reason]:
    """The typed reasons, for a shape that does not fit; empty when it is not for what it asks of
    its nodes. `ever`: never, rather than just now; then all that it asks for is one reason."""
    if shape.traits is None:
        return []
    runtime = runtime_of(shape.traits)
    if runtime != shape.traits and fits(shape._replace(traits=runtime)):
        return [_constraint(nodes, shape, it, ever=ever) for it in _texts(shape, fits, ever=ever)]
    if runtime is not None and fits(shape._replace(traits=None)):
        able = _able(nodes, runtime)
        detail = _containers(able, len(nodes), ever=ever)
        return [Reason(ReasonCode.RUNTIME, "nodes", shape.nodes, able, detail=detail)]
    return []


def _texts(shape: Shape, fits: Callable[[Shape], bool], *, ever: bool) -> list[str]:
    """Each of its traits that alone keeps it out; all of them together if none does."""
    traits = shape.traits or ""
    alone = [] if ever else [it for it in each_alone(traits) if not fits(shape._replace(traits=it))]
    return alone or [traits]


def _constraint(nodes: Collection[Node], shape: Shape, traits: str, *, ever: bool) -> Reason:
    able = _able(nodes, traits)
    words = " and ".join(chosen(traits))
    most = too_small(nodes, traits)
    told = f"the largest has {most}" if most else _counted(able, len(nodes), ever=ever)
    detail = f"{words}; {told}"
    return Reason(ReasonCode.CONSTRAINT, "nodes", shape.nodes, able, (), detail, words)


def _able(nodes: Collection[Node], traits: str) -> int:
    return sum(has_all(node, traits) for node in nodes)


def _counted(able: int, nodes: int, *, ever: bool) -> str:
    if not able:
        return f"that is true of none of the {nodes} nodes (see `dlq nodes -l`)"
    if not ever:
        return f"that is true of {able} of the {nodes} nodes; GPUs are free on others"
    return (
        f"the {able} nodes of which that is true could never hold it"
        if able > 1
        else "the one of which that is true could never hold it"
    )


def _containers(able: int, nodes: int, *, ever: bool) -> str:
    if not ever:
        return f"of {nodes} nodes {able} run containers; GPUs are free on others"
    if not able:
        return 'no node runs containers (runtime = "podman" in an agent\'s configuration)'
    count = "1 node runs" if able == 1 else f"{able} nodes run"
    return f"the {count} containers and could never hold it"
