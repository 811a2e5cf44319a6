"""The best placement of a batch that is known: proven where the program ends, never below Algorithm
1.
"""

from __future__ import annotations

from dlq_master.policy.place.packing import named, pattern
from dlq_master.policy.place.packing.joint import Arrangement, Joint, total_reward
from dlq_master.policy.place.packing.spare import quasi_consolidate
from dlq_master.policy.place.whole.local_search import local_search


def best(joint: Joint, time_limit_s: float = pattern.TIME_LIMIT_S) -> Arrangement:
    """Raises ValueError if they ask for more than is free.

    Without a solver when everybody can be together. At a limit the best of what the program has and
    of Algorithm 1, with the bound that was proven until then.
    """
    greedy = quasi_consolidate(joint)
    if greedy.proven:
        return greedy
    solution = pattern.solve(joint, time_limit_s=time_limit_s)
    bound = joint.most if solution is None else solution.bound
    candidates = [greedy]
    if solution is not None and solution.parts is not None:
        spots = tuple(named.spots(joint, solution.parts, solution.patterns))
        reward = total_reward(joint.members, spots)
        exact = Arrangement(spots, reward, bound, "placement program")
        if exact.proven:
            return exact
        candidates.append(exact)
    candidates.append(local_search(joint))
    return max(candidates, key=lambda found: found.reward)._replace(bound=bound)
