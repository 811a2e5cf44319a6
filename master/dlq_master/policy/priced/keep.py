"""Maps the nodes of a schedule to the nodes rented already, so that as few jobs as possible are
moved.
"""

from __future__ import annotations

from dlq_master.policy.priced.situation import Grant, Schedule, Situation


def settled(situation: Situation, made: Schedule) -> Schedule:
    """The same schedule, its nodes renamed. Nodes where most GPUs go on with the same job come
    first, then nodes of the same type. All others get free numbers. Costs nothing by the proxies.
    """
    running = situation.running
    names: dict[int, int] = {}
    taken: set[int] = set()
    for _, _, new, old in sorted(_pairs(running, made)):
        if new not in names and old not in taken:
            names[new] = old
            taken.add(old)
    free = iter(node for node in range(situation.nodes) if node not in taken)
    for new in sorted(made.types):
        if new not in names:
            names[new] = next(free)
    return Schedule(
        {names[node]: n for node, n in made.types.items()},
        {key: Grant(names[node], gpus) for key, (node, gpus) in made.grants.items()},
    )


def _pairs(running: Schedule, made: Schedule) -> list[tuple[int, int, int, int]]:
    """(-GPUs that go on as they were, -GPUs that stay on their node, new, old) for nodes of one
    type.
    """
    same = {
        (new, old): [0, 0]
        for new, n in made.types.items()
        for old, was in running.types.items()
        if n == was
    }
    for key, (new, gpus) in made.grants.items():
        had = running.grants.get(key)
        if had is not None and (found := same.get((new, had.node))) is not None:
            found[0] += gpus if gpus == had.gpus else 0
            found[1] += min(gpus, had.gpus)
    return [(-kept, -stays, new, old) for (new, old), (kept, stays) in same.items()]
