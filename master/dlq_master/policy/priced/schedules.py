"""Schedules of the methods: a check, and node numbers that move as few jobs as possible."""

from __future__ import annotations

from dlq_master.model.late import np
from dlq_master.policy.priced.situation import Grant, Schedule, Situation


def faults(situation: Situation, made: Schedule) -> list[str]:
    """The faults of a schedule in words; empty: it is possible."""
    catalogue, found = situation.catalogue, []
    used = dict.fromkeys(made.types, 0)
    if len(made.types) > situation.nodes or any(not 0 <= n < situation.nodes for n in made.types):
        found.append(f"{len(made.types)} nodes of {situation.nodes}")
    found += [
        f"{catalogue.types[n].name} cannot be had any more"
        for n in sorted(set(made.types.values()) - set(catalogue.offered))
    ]
    numbers = {job.key: number for number, job in enumerate(situation.jobs)}
    for key, (node, gpus) in made.grants.items():
        if key not in numbers:
            found.append(f"job {key} is not there")
        elif node not in made.types:
            found.append(f"job {key} is on node {node}, which is closed")
        else:
            rented = catalogue.types[made.types[node]]
            used[node] += gpus
            kind = catalogue.kinds.index(rented.kind)
            time = situation.time[numbers[key], kind]
            if not 1 <= gpus <= min(rented.gpus, len(time)) or not np.isfinite(time[gpus - 1]):
                found.append(f"job {key} may not run on {gpus} GPUs of {rented.kind}")
    for node, gpus in used.items():
        if gpus > catalogue.types[made.types[node]].gpus:
            found.append(f"node {node} has fewer than {gpus} GPUs")
    return found


def settled(situation: Situation, made: Schedule) -> Schedule:
    """The same schedule with nodes renumbered, so that as few jobs as possible move.

    Nodes whose jobs keep most GPUs get their old numbers first, if their type is the same. All
    others get free numbers. No cost depends on the numbers.
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
    """(-GPUs of unchanged jobs, -GPUs that stay on the node, new, old) for pairs of nodes of one
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
