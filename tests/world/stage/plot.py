"""What happens from outside in one world: its cast, and the acts of people and of trouble.

A plot is drawn from its seed, and is plain data. It can be written down, cut shorter, and played
again. Each seed switches on some kinds of trouble only. So a seed with few of them goes deep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from world.stage.acts import CLIENTS, Act, Facts, Settings
from world.stage.acts import node_of as _node
from world.stage.deaths import deaths
from world.stage.focus import FOCI, LATER
from world.stage.tape import Stream, Tape


class Plot(NamedTuple):
    """One world from outside."""

    settings: Settings
    acts: tuple[Act, ...]


POLICIES = ("best-effort", "dlq", "tiresias-las", "srtf")
SHAPES = ((1, None), (1, None), (2, None), (4, None), (2, 2), (4, 2))
RUNS_S = (2.0, 5.0, 15.0, 40.0, 90.0, 150.0)


def draw(seed: int) -> Plot:
    """The plot of a seed."""
    draws = Tape(seed).stream("plot")
    kinds = [kind for kind in TROUBLE if draws.below(10) < 4]
    settings = Settings(
        policy=draws.pick(POLICIES),
        gpus=tuple(draws.pick((2, 4, 4, 8)) for _ in range(draws.pick((2, 3, 3, 4)))),
        hold_s=draws.pick((40.0, 60.0, 120.0)),
        order=draws.below(3),
        lost=draws.pick((0, 20, 150)),
        doubled=draws.pick((0, 20, 150)),
        bad_start=draws.pick((0, 0, 50)),
        slow_release=draws.pick((0, 0, 200)),
        drift=draws.pick((0.0, 0.0, 0.0002)),
        late_s=draws.pick((0.0, 0.0, 3.0)),
        masters=draws.pick((1, 1, 2)),
    )
    later = Tape(seed).stream("later plot")
    if later.below(6) == 5:
        focus = later.pick(tuple(LATER))
        settings, acts = LATER[focus](later, settings._replace(focus=focus))
        kinds = [later.pick(kinds)] if kinds and later.below(2) else []
    elif draws.below(3):
        focus = draws.pick(tuple(FOCI))
        settings, acts = FOCI[focus](draws, settings._replace(focus=focus))
        kinds = [draws.pick(kinds) for _ in range(draws.pick((0, 0, 1, 2)))] if kinds else []
    else:
        acts = _work(draws, settings)
    for kind in kinds:
        acts += TROUBLE[kind](draws, settings)
    acts += _harmed_disks(Tape(seed).stream("disk plot"), settings)
    acts += deaths(Tape(seed).stream("death plot"), settings)
    return Plot(settings, tuple(sorted(acts, key=lambda act: (act.at_s, act.what))))


def _instant(draws: Stream, settings: Settings, from_s: float = 1.0) -> float:
    return round(draws.spread(from_s, settings.busy_s), 3)


def _work(draws: Stream, settings: Settings) -> list[Act]:
    """What people ask for."""
    acts: list[Act] = []
    for number in range(4 + draws.below(12)):
        at_s = _instant(draws, settings)
        gpus, nodes = draws.pick(SHAPES)
        job: dict[str, Any] = {
            "client": draws.pick(tuple(CLIENTS)),
            "job": f"j{number}",
            "gpus": gpus,
            "run_s": draws.pick(RUNS_S),
        }
        rare = {
            "nodes": nodes,
            "code": draws.pick((0, 0, 0, 0, 1, 99)),
            "saves_s": draws.pick((None, None, 2.0, 20.0)),
            "deaf": draws.below(8) == 7,
            "queue": draws.pick(("", "small", "small")),
            "due_s": draws.pick((None, None, None, 200.0, 600.0)),
            "hold": draws.below(10) == 9,
            "after": f"j{draws.below(number)}" if number and draws.below(5) == 4 else None,
            "if_ok": draws.below(2) == 1,
        }
        acts.append(Act(at_s, "submit", job | {key: it for key, it in rare.items() if it}))
        acts += _edits(draws, settings, job["job"], at_s)
        acts += _looks(draws, job["job"], at_s)
    for _ in range(draws.below(3)):
        node = f"n{draws.below(len(settings.gpus))}"
        at_s = _instant(draws, settings)
        acts.append(Act(at_s, "drain", {"node": node}))
        acts.append(Act(at_s + draws.spread(5.0, 100.0), "undrain", {"node": node}))
    return acts


def _edits(draws: Stream, settings: Settings, job: str, at_s: float) -> list[Act]:
    edits = ("cancel", "hold", "release", "requeue", "nice", "look")
    acts = []
    for _ in range(draws.pick((0, 0, 1, 1, 2, 4))):
        what = draws.pick(edits)
        when_s = round(at_s + draws.pick((0.0, 0.5, 3.0, 20.0, 90.0)) * draws.spread(0.1, 1.0), 3)
        facts = {"client": draws.pick(tuple(CLIENTS)), "job": job}
        acts.append(Act(when_s, what, facts | ({"to": draws.below(9)} if what == "nice" else {})))
        if what == "hold":
            acts.append(Act(when_s + draws.spread(1.0, 60.0), "release", facts))
    return acts


def _looks(draws: Stream, job: str, at_s: float) -> list[Act]:
    whens = [at_s + draws.spread(0.1, 60.0) for _ in range(draws.below(5))]
    clients = tuple(CLIENTS)
    return [
        Act(round(when_s, 3), "look", {"client": draws.pick(clients), "job": job})
        for when_s in whens
    ]


# --- trouble --------------------------------------------------------------------------------------


def _some(
    draws: Stream, settings: Settings, what: str, most: int, facts: Callable[[], Facts]
) -> list[Act]:
    count = 1 + draws.below(most)
    return [Act(_instant(draws, settings, 5.0), what, facts()) for _ in range(count)]


def _master(draws: Stream, settings: Settings) -> str:
    return f"m{1 + draws.below(settings.masters)}"


def _kills_of_masters(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "kill_master", 8, lambda: {
        "master": _master(draws, settings), "at": draws.pick(("once", "failpoint", "callback")),
        "number": 1 + draws.below(draws.pick((8, 60)))
    })  # fmt: skip


def _kills_of_agents(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "kill_agent", 8, lambda: {
        "node": _node(draws, settings), "touches": draws.below(14)
    })  # fmt: skip


def _power_cuts(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "power_cut", 2, lambda: {"node": _node(draws, settings)})


def _stops_of_masters(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "stop_master", 2, lambda: {
        "master": _master(draws, settings), "for_s": draws.pick((3.0, 20.0, 80.0))
    })  # fmt: skip


def _stops_of_agents(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "stop_agent", 3, lambda: {
        "node": _node(draws, settings), "for_s": draws.pick((3.0, 22.0, 80.0, 160.0))
    })  # fmt: skip


def _cuts_of_masters(draws: Stream, settings: Settings) -> list[Act]:
    """Every node loses its line to one master."""
    return _some(draws, settings, "cut_off", 3, lambda: {
        "master": _master(draws, settings), "for_s": draws.pick((4.0, 18.0, 50.0))
    })  # fmt: skip


def _cuts(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "cut", 4, lambda: {
        "node": _node(draws, settings),
        "way": draws.pick(("both", "up", "down")),
        "for_s": draws.pick((2.0, 12.0, 28.0, 75.0, 160.0)),
    })  # fmt: skip


def _slow_cuts(draws: Stream, settings: Settings) -> list[Act]:
    """A line becomes slow, and breaks before its words have arrived."""
    acts = []
    for _ in range(1 + draws.below(3)):
        at_s, node = _instant(draws, settings, 5.0), _node(draws, settings)
        slow = {"node": node, "by_s": draws.pick((3.0, 9.0)), "for_s": 30.0}
        cut = {"node": node, "way": draws.pick(("up", "both")), "for_s": draws.pick((75.0, 160.0))}
        acts += [Act(at_s, "slow_line", slow), Act(at_s + draws.spread(1.0, 25.0), "cut", cut)]
    return acts


def _resets(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "reset", 6, lambda: {"node": _node(draws, settings)})


def _slow_lines(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "slow_line", 3, lambda: {
        "node": _node(draws, settings),
        "by_s": draws.pick((0.5, 3.0, 11.0)),
        "for_s": draws.pick((10.0, 60.0)),
    })  # fmt: skip


def _cuts_from_store(draws: Stream, settings: Settings) -> list[Act]:
    if settings.masters == 1:
        return []
    return _some(draws, settings, "cut_from_store", 4, lambda: {
        "master": _master(draws, settings), "for_s": draws.pick((1.0, 3.0, 8.0, 40.0))
    })  # fmt: skip


def _slow_disks(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "slow_disk", 3, lambda: {
        "by_s": draws.pick((0.2, 2.0, 8.0, 30.0)), "for_s": draws.pick((5.0, 40.0))
    })  # fmt: skip


def _slow_kills(draws: Stream, settings: Settings) -> list[Act]:
    """A master dies while it waits for its slow disk, and people look on."""
    acts = []
    for _ in range(1 + draws.below(3)):
        at_s = _instant(draws, settings, 5.0)
        acts.append(Act(at_s, "slow_disk", {"by_s": draws.pick((2.0, 6.0)), "for_s": 15.0}))
        facts = {"master": _master(draws, settings), "at": "once", "number": 1}
        acts.append(Act(at_s + draws.spread(1.0, 12.0), "kill_master", facts))
        for _ in range(12):
            job = f"j{draws.below(8)}"
            what = draws.pick(("look", "look", "look", "nice", "hold"))
            told: dict[str, Any] = {"client": draws.pick(tuple(CLIENTS)), "job": job}
            told |= {"to": 1 + draws.below(9)} if what == "nice" else {}
            acts.append(Act(at_s + draws.spread(0.0, 30.0), what, told))
            if what == "hold":
                acts.append(Act(at_s + 60.0, "release", told))
    return acts


def _bad_disks(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "bad_disk", 3, lambda: {
        "how": draws.pick(("broken", "full")), "for_s": draws.pick((0.5, 10.0, 40.0))
    })  # fmt: skip


def _harmed_disks(draws: Stream, settings: Settings) -> list[Act]:
    """In one of eight seeds; from a stream of their own, as `LATER`."""
    if draws.below(8) != 7:
        return []
    return _some(draws, settings, "harmed_disk", 3, lambda: {
        "how": draws.pick(("turned", "turned", "unreadable")), "for_s": draws.pick((3.0, 20.0))
    })  # fmt: skip


def _clocks(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "set_clock", 4, lambda: {
        "host": draws.pick(("m1", _node(draws, settings))),
        "by_s": draws.pick((-1700.0, -30.0, 30.0, 1700.0)),
    })  # fmt: skip


def _full_agents(draws: Stream, settings: Settings) -> list[Act]:
    return _some(draws, settings, "full_agent", 2, lambda: {
        "node": _node(draws, settings), "for_s": draws.pick((5.0, 60.0))
    })  # fmt: skip


TROUBLE: Mapping[str, Callable[[Stream, Settings], list[Act]]] = {
    "kills of masters": _kills_of_masters,
    "kills of agents": _kills_of_agents,
    "power cuts": _power_cuts,
    "stops of masters": _stops_of_masters,
    "stops of agents": _stops_of_agents,
    "cuts": _cuts,
    "cuts of masters": _cuts_of_masters,
    "slow cuts": _slow_cuts,
    "resets": _resets,
    "slow lines": _slow_lines,
    "cuts from the store": _cuts_from_store,
    "slow disks": _slow_disks,
    "slow kills": _slow_kills,
    "bad disks": _bad_disks,
    "clocks": _clocks,
    "full agents": _full_agents,
}
