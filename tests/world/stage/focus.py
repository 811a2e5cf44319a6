"""Worlds that look at one thing: short, dense, and with one kind of trouble where it hurts most.

Two thirds of the seeds have a focus. It draws its own cast, work and trouble. A little trouble of
other kinds goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from world.stage.acts import CLIENTS, LEADER, Act, Settings, node_of
from world.stage.tape import Stream

Focused = tuple[Settings, list[Act]]
CLIENT = tuple(CLIENTS)
SHORT_S = (0.5, 2.0, 5.0)
LONG_S = (90.0, 150.0)
MIXED_S = (2.0, 15.0, 90.0, 150.0)


def _jobs(
    draws: Stream, count: int, until_s: float, runs_s: tuple[float, ...], **more: Any
) -> list[Act]:
    """Jobs that are asked for in the first `until_s` seconds. The runs get longer with `runs_s`."""
    acts = []
    for number in range(count):
        facts: dict[str, Any] = {
            "client": draws.pick(CLIENT),
            "job": f"j{number}",
            "gpus": draws.pick((1, 1, 2)),
            "run_s": draws.pick(runs_s),
        } | more
        if draws.below(3) == 2:
            facts["deaf"] = True
        if draws.below(6) == 5:
            facts |= {"gpus": 2, "nodes": 2}
        acts.append(Act(round(draws.spread(1.0, until_s), 3), "submit", facts))
    return acts


def _at(draws: Stream, from_s: float, to_s: float) -> float:
    return round(draws.spread(from_s, to_s), 3)


def _looks(draws: Stream, count: int, jobs: int, to_s: float) -> list[Act]:
    return [
        Act(
            _at(draws, 5.0, to_s),
            "look",
            {"client": draws.pick(CLIENT), "job": f"j{draws.below(jobs)}"},
        )
        for _ in range(count)
    ]


def silence(draws: Stream, settings: Settings) -> Focused:
    """Nodes fall silent for longer than the hold, in several ways, under long jobs."""
    late_s = draws.pick((0.0, 3.0, 3.0))
    settings = settings._replace(hold_s=40.0, busy_s=200.0, late_s=late_s, masters=1)
    acts = _jobs(draws, 4 + draws.below(5), 40.0, LONG_S)
    for node in range(draws.pick((1, 2, 2))):
        where, at_s = f"n{node}", _at(draws, 20.0, 90.0)
        for_s = draws.pick((75.0, 160.0))
        what = draws.pick(("cut", "cut", "stop_agent", "freeze"))
        facts: dict[str, Any] = {"node": where, "for_s": for_s}
        way = {"way": draws.pick(("both", "up", "down"))} if what == "cut" else {}
        acts.append(Act(at_s, what, facts | way))
        if draws.below(3) == 2:
            again = {"node": where, "touches": draws.below(6)}
            acts.append(Act(at_s + draws.spread(0.0, 60.0), "kill_agent", again))
    return settings, acts


def late_answers(draws: Stream, settings: Settings) -> Focused:
    """Words to a node are late, and then nothing comes from it any more."""
    late_s = draws.pick((0.0, 3.0))
    settings = settings._replace(hold_s=40.0, busy_s=200.0, late_s=late_s, masters=1)
    acts = _jobs(draws, 4 + draws.below(4), 20.0, LONG_S)
    for node in range(2):
        at_s = _at(draws, 25.0, 70.0)
        slow = {"node": f"n{node}", "by_s": draws.pick((7.0, 11.0, 15.0)), "for_s": 60.0}
        cut = {"node": f"n{node}", "way": "up", "for_s": draws.pick((75.0, 160.0))}
        acts += [
            Act(at_s, "slow_answers", slow),
            Act(at_s + draws.spread(4.0, 25.0), "cut", cut),
        ]
    return settings, acts


def hung_starts(draws: Stream, settings: Settings) -> Focused:
    """Launches take very long to prepare, and the master falls silent meanwhile."""
    settings = settings._replace(hold_s=40.0, busy_s=200.0, hung=600, masters=1)
    acts = _jobs(draws, 5 + draws.below(5), 60.0, MIXED_S)
    for node in range(2):
        at_s = _at(draws, 5.0, 70.0)
        what = draws.pick(("cut", "cut", "stop_agent", "kill_agent", "freeze"))
        facts: dict[str, Any] = {"node": f"n{node}"}
        if what == "kill_agent":
            cut = facts | {"way": "both", "for_s": draws.pick((75.0, 160.0))}
            acts += [Act(at_s, "cut", cut), Act(at_s, what, facts | {"touches": 0})]
            continue
        way = {"way": draws.pick(("both", "up"))} if what == "cut" else {}
        acts.append(Act(at_s, what, facts | {"for_s": draws.pick((75.0, 100.0, 160.0))} | way))
    return settings, acts


def power(draws: Stream, settings: Settings) -> Focused:
    """Hosts lose their power while ends and orders are under way."""
    settings = settings._replace(busy_s=150.0)
    settings = settings._replace(gpus=settings.gpus[:2])
    acts = _jobs(draws, 16 + draws.below(10), 120.0, (*SHORT_S, 15.0))
    for _ in range(4 + draws.below(4)):
        at_s, node = _at(draws, 5.0, 140.0), node_of(draws, settings)
        if draws.below(4):
            cut = {"node": node, "way": draws.pick(("up", "both")), "for_s": 12.0}
            acts.append(Act(at_s, "cut", cut))
        acts.append(Act(at_s + draws.spread(0.0, 12.0), "power_cut", {"node": node}))
    for _ in range(draws.below(4)):
        facts = {"node": node_of(draws, settings), "touches": 1 + draws.below(14)}
        acts.append(Act(_at(draws, 5.0, 140.0), "kill_agent", facts))
    return settings, acts


def records(draws: Stream, settings: Settings) -> Focused:
    """Agents die in the middle of their acts, have full disks, and lose records."""
    settings = settings._replace(busy_s=150.0)
    acts = _jobs(draws, 8 + draws.below(5), 120.0, MIXED_S)
    for _ in range(4 + draws.below(6)):
        facts = {"node": node_of(draws, settings), "touches": draws.below(20)}
        acts.append(Act(_at(draws, 5.0, 140.0), "kill_agent", facts))
    for _ in range(draws.below(4)):
        acts.append(Act(_at(draws, 10.0, 140.0), "lost_record", {"node": node_of(draws, settings)}))
    for _ in range(draws.below(3)):
        facts = {"node": node_of(draws, settings), "for_s": draws.pick((5.0, 30.0))}
        acts.append(Act(_at(draws, 5.0, 140.0), "full_agent", facts))
    return settings, acts


def split(draws: Stream, settings: Settings) -> Focused:
    """Of two masters one is cut off from the store, or stopped, and still has its nodes."""
    settings = settings._replace(masters=2, hold_s=40.0, busy_s=200.0)
    acts = _jobs(draws, 4 + draws.below(5), 60.0, MIXED_S)
    at_s = _at(draws, 8.0, 40.0)
    for _ in range(2 + draws.below(3)):
        master = draws.pick((LEADER, LEADER, "m1", "m2"))
        for_s = draws.pick((3.0, 8.0, 40.0, 150.0))
        what = draws.pick(("cut_from_store", "stop_master", "stop_master", "cut_off"))
        acts.append(Act(at_s, what, {"master": master, "for_s": for_s}))
        for _ in range(draws.below(4)):
            when_s = at_s + draws.spread(1.0, 40.0)
            acts.append(Act(when_s, "reset", {"node": node_of(draws, settings)}))
        at_s = round(at_s + draws.spread(2.0, 50.0), 3)
    for number in range(5):
        facts = {"client": draws.pick(CLIENT), "job": f"j{number}", "to": draws.below(9)}
        acts.append(Act(_at(draws, 10.0, 150.0), "nice", facts))
    return settings, acts + _looks(draws, 40, 6, 180.0)


def commits(draws: Stream, settings: Settings) -> Focused:
    """Masters die around their commits, on slow and failing disks, and everybody looks on."""
    settings = settings._replace(busy_s=120.0)
    acts = _jobs(draws, 6 + draws.below(6), 100.0, SHORT_S)
    for _ in range(3 + draws.below(4)):
        at_s = _at(draws, 3.0, 110.0)
        what = draws.pick(("failpoint", "callback", "once"))
        facts: dict[str, Any] = {"master": "m1", "at": what, "number": 1 + draws.below(12)}
        if draws.below(2):
            by_s = draws.pick((0.2, 2.0, 6.0))
            acts.append(Act(at_s, "slow_disk", {"by_s": by_s, "for_s": 8.0}))
        if draws.below(4) == 3:
            how = draws.pick(("broken", "full"))
            acts.append(Act(at_s, "bad_disk", {"how": how, "for_s": draws.pick((0.5, 10.0))}))
        acts.append(Act(at_s + draws.spread(0.0, 6.0), "kill_master", facts))
    for _ in range(12):
        word = draws.pick(("nice", "cancel", "requeue", "nice"))
        told: dict[str, Any] = {"client": draws.pick(CLIENT), "job": f"j{draws.below(8)}"}
        acts.append(
            Act(
                _at(draws, 5.0, 110.0),
                word,
                told | ({"to": draws.below(9)} if word == "nice" else {}),
            )
        )
    return settings, acts + _looks(draws, 24, 8, 115.0)


def requests(draws: Stream, settings: Settings) -> Focused:
    """Many calls, of which many are lost or come twice."""
    settings = settings._replace(busy_s=100.0, lost=150, doubled=150)
    acts = _jobs(draws, 8 + draws.below(6), 60.0, (*SHORT_S, 15.0), queue="small")
    for act in list(acts):
        for _ in range(draws.below(3)):
            word = draws.pick(("cancel", "requeue", "hold", "nice", "look"))
            told: dict[str, Any] = {"client": draws.pick(CLIENT), "job": act.facts["job"]}
            told |= {"to": draws.below(9)} if word == "nice" else {}
            when_s = round(act.at_s + draws.spread(0.1, 20.0), 3)
            acts.append(Act(when_s, word, told))
            if word == "hold":
                acts.append(Act(when_s + draws.spread(1.0, 20.0), "release", told))
    if draws.below(2):
        facts = {"master": "m1", "at": "failpoint", "number": 1 + draws.below(20)}
        acts.append(Act(_at(draws, 5.0, 60.0), "kill_master", facts))
    return settings, acts


def failures(draws: Stream, settings: Settings) -> Focused:
    """Jobs fail, ask to run again, and cannot be started; nodes are drained."""
    settings = settings._replace(
        busy_s=120.0, bad_start=draws.pick((0, 500)), slow_release=draws.pick((0, 300))
    )
    acts = _jobs(draws, 3 + draws.below(3), 40.0, SHORT_S, code=99)
    more = _jobs(draws, 5 + draws.below(4), 80.0, (*SHORT_S, 15.0))
    acts += [it._replace(facts={**it.facts, "job": f"k{at}"}) for at, it in enumerate(more)]
    for _ in range(draws.below(4)):
        at_s, facts = _at(draws, 3.0, 80.0), {"node": node_of(draws, settings)}
        acts.append(Act(at_s, "drain", facts))
        acts.append(Act(at_s + draws.spread(10.0, 60.0), "undrain", facts))
    for _ in range(draws.below(5)):
        facts = {"node": node_of(draws, settings)}
        acts.append(Act(_at(draws, 5.0, 100.0), draws.pick(("power_cut", "reset")), facts))
    return settings, acts


def arrays(draws: Stream, settings: Settings) -> Focused:
    """Arrays with a limit, whose submissions are lost and come twice, under a master that dies."""
    settings = settings._replace(busy_s=120.0, lost=draws.pick((0, 150)), doubled=150)
    acts = _jobs(draws, 2, 60.0, (*SHORT_S, 15.0))
    for number in range(2 + draws.below(3)):
        tasks = draws.pick((2, 4, 9))
        facts: dict[str, Any] = {
            "client": draws.pick(CLIENT),
            "job": f"a{number}",
            "gpus": 1,
            "run_s": draws.pick((*SHORT_S, 15.0)),
            "tasks": tasks,
            "at_once": draws.pick((0, 1, 2)),
        }
        at_s = _at(draws, 1.0, 60.0)
        acts.append(Act(at_s, "submit", facts))
        for _ in range(draws.below(5)):
            task = draws.below(tasks)
            label = f"a{number}.{task}" if task else f"a{number}"
            told: dict[str, Any] = {"client": draws.pick(CLIENT), "job": label}
            word = draws.pick(("cancel", "requeue", "hold", "nice", "look"))
            told |= {"to": draws.below(9)} if word == "nice" else {}
            when_s = round(at_s + draws.spread(0.1, 30.0), 3)
            acts.append(Act(when_s, word, told))
            if word == "hold":
                acts.append(Act(when_s + draws.spread(1.0, 20.0), "release", told))
    for _ in range(1 + draws.below(4)):
        at = draws.pick(("failpoint", "once", "callback"))
        facts = {"master": "m1", "at": at, "number": 1 + draws.below(12)}
        acts.append(Act(_at(draws, 3.0, 80.0), "kill_master", facts))
    return settings, acts


def groups(draws: Stream, settings: Settings) -> Focused:
    """Groups whose members fail, are changed and lose nodes, under a master that may die."""
    settings = settings._replace(busy_s=150.0, keep_s=draws.pick((0.0, 40.0)))
    acts = _jobs(draws, 2 + draws.below(5), 80.0, (*SHORT_S, 15.0))
    count = 1 + draws.below(3)
    for number in range(count):
        members = [_member(draws) for _ in range(draws.pick((2, 2, 3)))]
        facts = {"client": draws.pick(CLIENT), "job": f"g{number}", "members": members}
        at_s = _at(draws, 1.0, 60.0)
        acts.append(Act(at_s, "submit_group", facts))
        for _ in range(draws.below(4)):
            told: dict[str, Any] = {
                "client": draws.pick(CLIENT),
                "job": f"g{number}.m{draws.below(len(members))}",
            }
            word = draws.pick(("look", "nice", "requeue", "hold", "cancel"))
            told |= {"to": draws.below(9)} if word == "nice" else {}
            when_s = round(at_s + draws.spread(0.1, 60.0), 3)
            acts.append(Act(when_s, word, told))
            if word == "hold":
                acts.append(Act(when_s + draws.spread(1.0, 20.0), "release", told))
    return settings, acts + _lost_nodes(draws, settings) + _deaths(draws)


def kept_gpus(draws: Stream, settings: Settings) -> Focused:
    """Gangs and groups of a full cluster lose nodes, and small jobs wait beside what they keep."""
    settings = settings._replace(
        policy="dlq", gpus=draws.pick(((2, 2, 2), (4, 4, 4), (2, 2, 2, 2))), busy_s=200.0,
        keep_s=draws.pick((30.0, 15.0, 60.0)),
    )  # fmt: skip
    acts = []
    for number in range(1 + draws.below(2)):
        gang = {"gpus": 2 * settings.gpus[0], "nodes": 2, "run_s": draws.pick(LONG_S)}
        facts: dict[str, Any] = {"client": draws.pick(CLIENT), "job": f"g{number}"}
        if draws.below(2):
            small = {"gpus": 1, "run_s": draws.pick(LONG_S), "ends": "each"}
            facts["members"] = [{**gang, "ends": draws.pick(("all", "each"))}, small]
        else:
            facts |= gang
        what = "submit_group" if "members" in facts else "submit"
        acts.append(Act(_at(draws, 1.0, 8.0), what, facts))
    for number in range(6 + draws.below(8)):
        facts = {"client": draws.pick(CLIENT), "job": f"j{number}", "gpus": 1}
        acts.append(Act(_at(draws, 10.0, 60.0), "submit", facts | {"run_s": draws.pick(LONG_S)}))
    facts = {"node": f"n{draws.below(2)}"}
    at_s, for_s = _at(draws, 30.0, 60.0), draws.pick((120.0, 60.0))
    acts.append(Act(at_s, "drain", facts))
    if draws.below(2):
        acts.append(Act(at_s + 0.5, "power_cut", facts))
    acts.append(Act(at_s + for_s, "undrain", facts))
    more = _lost_nodes(draws, settings) if draws.below(2) else []
    return settings, acts + more + _deaths(draws)


def _member(draws: Stream) -> dict[str, Any]:
    """A member of a group, as its act has it."""
    wide = draws.pick(({"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"gpus": 2, "nodes": 2}))
    code = draws.pick((0, 0, 0, 1, 99))
    return {
        **wide,
        "run_s": draws.pick((15.0, 5.0, 40.0, 90.0)),
        "ends": draws.pick(("each", "all", "each", "alone")),
        **({"code": code} if code else {}),
        **({"saves_s": 2.0} if draws.below(3) else {}),
    }


def _lost_nodes(draws: Stream, settings: Settings) -> list[Act]:
    """Nodes that lose their power, drain, or fall silent for longer than the hold."""
    acts = []
    for _ in range(1 + draws.below(3)):
        at_s, facts = _at(draws, 20.0, 110.0), {"node": node_of(draws, settings)}
        what = draws.pick(("power_cut", "power_cut", "drain", "stop_agent"))
        for_s = draws.pick((30.0, 75.0, 160.0))
        acts.append(Act(at_s, what, facts | ({"for_s": for_s} if what == "stop_agent" else {})))
        if what == "drain":
            acts.append(Act(at_s + for_s, "undrain", facts))
        elif what == "power_cut" and draws.below(3):
            acts.append(Act(at_s, "drain", facts))  # so that it gets no new work for a while
            acts.append(Act(at_s + for_s, "undrain", facts))
    return acts


def _deaths(draws: Stream) -> list[Act]:
    acts = []
    for _ in range(draws.below(3)):
        at = draws.pick(("failpoint", "once", "callback"))
        facts = {"master": "m1", "at": at, "number": 1 + draws.below(12)}
        acts.append(Act(_at(draws, 5.0, 140.0), "kill_master", facts))
    return acts


def failover(draws: Stream, settings: Settings) -> Focused:
    """The database of two masters moves to its second server, which may lag."""
    settings = settings._replace(masters=2, hold_s=40.0, busy_s=150.0)
    acts = _jobs(draws, 5 + draws.below(5), 100.0, MIXED_S)
    for _ in range(1 + draws.below(4)):
        at_s = _at(draws, 5.0, 140.0)
        facts: dict[str, Any] = {
            "lagging": draws.below(2) == 1,
            "behind": draws.pick((0, 1, 4)),
            "for_s": draws.pick((5.0, 30.0)),
        }
        acts.append(Act(at_s, "promote", facts))
        what = draws.pick(("", "kill_master", "cut_from_store", "stop_master"))
        if what:
            trouble: dict[str, Any] = {"master": draws.pick((LEADER, "m1", "m2"))}
            once = {"at": "once", "number": 1}
            trouble |= once if what == "kill_master" else {"for_s": draws.pick((3.0, 12.0, 40.0))}
            acts.append(Act(round(at_s + draws.spread(-4.0, 10.0), 3), what, trouble))
    return settings, acts + _looks(draws, 20, 6, 140.0)


FOCI: Mapping[str, Callable[[Stream, Settings], Focused]] = {
    "silence": silence,
    "late answers": late_answers,
    "hung starts": hung_starts,
    "power": power,
    "records": records,
    "split": split,
    "commits": commits,
    "requests": requests,
    "failures": failures,
    "arrays": arrays,
    "failover": failover,
}

# Drawn from a stream of their own: all other seeds stay as they were before these came.
LATER: Mapping[str, Callable[[Stream, Settings], Focused]] = {
    "groups": groups,
    "kept GPUs": kept_gpus,
}
