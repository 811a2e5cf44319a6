"""Whether a schedule is possible: the check of every solver's answer."""

from __future__ import annotations

import numpy as np

from dlq_master.policy.priced.situation import Schedule, Situation


def faults(situation: Situation, made: Schedule) -> list[str]:
    """Its faults, in words; nothing if it is possible."""
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
