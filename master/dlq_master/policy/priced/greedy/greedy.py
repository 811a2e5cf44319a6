"""Entry points of the paper's heuristics: greedy, randomised greedy, path relinking (section 3.3);
and of the local search of its released program.
"""

from __future__ import annotations

from dlq_master.model.late import np
from dlq_master.policy.priced.greedy.batch import ScheduleRows
from dlq_master.policy.priced.greedy.construct import construct
from dlq_master.policy.priced.greedy.local import MOST_CHANGES, climb
from dlq_master.policy.priced.greedy.mutable import Mutable
from dlq_master.policy.priced.greedy.postprocess import give_idle
from dlq_master.policy.priced.greedy.proxy import score
from dlq_master.policy.priced.greedy.relink import relink
from dlq_master.policy.priced.rules import Proxy, Rules
from dlq_master.policy.priced.situation import EMPTY, Schedule, Situation

GREEDY = Rules(iterations=1)
RANDOMIZED = Rules()
PATH_RELINKING = Rules(proxy=Proxy.EFFICIENCY)
LOCAL_SEARCH = Rules(proxy=Proxy.EFFICIENCY, moves=MOST_CHANGES)


def greedy(situation: Situation, draw: np.random.Generator, rules: Rules = GREEDY) -> Schedule:
    """The deterministic construction, postprocessed. Uses no random numbers."""
    return randomized(situation, draw, rules._replace(iterations=1))


def randomized(
    situation: Situation, draw: np.random.Generator, rules: Rules = RANDOMIZED
) -> Schedule:
    """The best of many constructions by the proxy, the greedy one included; the first of equals."""
    if not situation.jobs:
        return EMPTY
    batch = _constructed(situation, rules, draw)
    return batch.schedule(int(np.argmax(score(batch, rules))))


def path_relinking(
    situation: Situation, draw: np.random.Generator, rules: Rules = PATH_RELINKING
) -> Schedule:
    """Randomised greedy, then path relinking from the best towards the other elite schedules."""
    if not situation.jobs:
        return EMPTY
    batch = _constructed(situation, rules, draw)
    scores = score(batch, rules)
    best, *others = _elite(scores, rules.elite)
    if not others:
        return batch.schedule(best)
    source = Mutable(batch, best, rules)
    targets = [Mutable(batch, row, rules) for row in others]
    if not relink(source, targets, rules.moves or situation.nodes):
        return batch.schedule(best)
    made = source.into(batch)
    give_idle(made, to_one=rules.released)
    better = score(made, rules)[0] >= scores[best]
    return made.schedule(0) if better else batch.schedule(best)


def local_search(
    situation: Situation, draw: np.random.Generator, rules: Rules = LOCAL_SEARCH
) -> Schedule:
    """Randomised greedy by f-bar, local search from its best schedule, and postprocessing again."""
    if not situation.jobs:
        return EMPTY
    batch = _constructed(situation, rules, draw)
    made = climb(batch.rows(np.array([int(np.argmax(score(batch, rules)))])), rules.moves)
    give_idle(made, to_one=rules.released)
    return made.schedule(0)


def _constructed(situation: Situation, rules: Rules, draw: np.random.Generator) -> ScheduleRows:
    batch = construct(situation, rules, draw)
    give_idle(batch, to_one=rules.released)
    return batch


def _elite(scores: np.ndarray[tuple[int], np.dtype[np.float64]], size: int) -> list[int]:
    """The best rows with different scores, the best first; of equals the first row."""
    values, first = np.unique(scores, return_index=True)
    best = np.argsort(-values, kind="stable")[:size]
    return [int(row) for row in first[best]]
