"""The bounds of each campaign, from the twelve goals of the project and from what was asked later.

A goal keeps its number here also where two shared cores may miss it; `reason` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.prove.bounds import Bound, growth_percent

SECOND_MASTER = "issue 24"  # what was asked of two masters
LEDGER = ("overlaps", "more_than_one_attempt", "wrong")
SHARED = (
    "The neighbour, the bad job, four agents, the master and the clients share two cores, and no "
    "job asks for a share of its own."
)


def ledger(source: str) -> list[Bound]:
    """The counts of the judge of the jobs' own ledger."""
    words = {
        "overlaps": "jobs that ran twice at once",
        "more_than_one_attempt": "jobs that were started again",
        "wrong": "jobs that are lost or other than promised",
    }
    return [Bound(words[name], name, source, at_most=0) for name in LEDGER]


def takeover(fault: str, words: str, seconds: float) -> Bound:
    """The longest wait for the next leader after one fault."""
    return Bound(
        words, "worst_s", SECOND_MASTER, at_most=seconds, unit="s",
        row={"campaign": "takeovers", "fault": fault},
        reason="Two masters, three servers of the database, two agents and the clients share two "
        "cores.",
    )  # fmt: skip


BOUNDS: Mapping[str, Sequence[Bound]] = {
    "kills": (
        Bound("kills of the master", "kills_of_the_master", "goal 1", at_least=1000, full=True,
              row={"campaign": "kills"}),
        Bound("kills of agents", "kills_of_agents", "goal 2", at_least=1000, full=True,
              row={"campaign": "kills"}),
        Bound("jobs", "jobs", "goal 1", at_least=10_000, full=True, row={"campaign": "kills"}),
        Bound("deaths at named failpoints", "deaths", "goal 1", at_least="passages"),
        *ledger("goal 1"),
    ),
    "restarts": (
        Bound("back in service, all forms", "restart with * jobs to the first answer", "goal 1",
              at_most=5, unit="s"),
        Bound("back in service with 100,000 waiting and 100,000 ended jobs",
              "restart with 200000 jobs to the first answer", "goal 1", at_most=5, unit="s",
              full=True),
    ),
    "shipping": (
        Bound("jobs lost that were acknowledged before the told instant",
              "lost_before_the_told_instant", "the page of shipping", at_most=0,
              row={"campaign": "a host lost in mid-load"}),
    ),
    "agents": (
        Bound("kills of one agent", "kills_of_agents", "goal 2", at_least=1000, full=True),
    ),
    "partitions": (
        Bound("cuts", "cuts", "goal 3", at_least=500, full=True),
        Bound("longest cut", "longest_s", "goal 3", at_least=600, unit="s", full=True),
        Bound("jobs that ran twice at once", "overlaps", "goal 3", at_most=0),
    ),
    "silences": (
        Bound("requeues while half of the nodes are cut", "requeues*", "goal 3", at_most=0),
        Bound("requeue of one cut node, after its hold, at the earliest",
              "requeued_after_hold_least_s", "goal 3", at_least=0, unit="s"),
        Bound("requeue of one cut node, after its hold, at the latest",
              "requeued_after_hold_worst_s", "goal 3", at_most=10, unit="s"),
        Bound("all is well after the line is", "self_heal_worst_s", "goal 3", at_most=30,
              unit="s"),
        Bound("longest cut of half", "longest_s", "goal 3", at_least=60, unit="s", full=True),
    ),
    "replies": (
        Bound("submits", "submits", "goal 5", at_least=100_000, full=True),
        Bound("answers lost", "replies_lost", "goal 5", at_least=10_000, full=True),
        Bound("jobs", "jobs", "goal 5", at_most="submits"),
        Bound("jobs", "jobs", "goal 5", at_least="submits"),
    ),
    "takeovers": (
        Bound("takeovers", "takeovers", "goal 4", at_least=200, full=True),
        Bound("longest of all kinds", "worst_s", "goal 4", at_most=10, unit="s",
              row={"campaign": "takeovers"}),
        takeover("left", "planned", 1),
        takeover("killed", "the process dies", 3),
        takeover("stopped", "the process stands still", 6),
        takeover("half open", "its lines are cut or half open", 6),
        takeover("failover", "the primary of the database dies", 9),
        Bound("answers that went back", "reads_that_went_back", SECOND_MASTER, at_most=0),
        *ledger("goal 4"),
    ),
    "world": (
        Bound("seeds", "seeds", "goal 10", at_least=10_000, full=True),
        Bound("virtual hours", "virtual_hours", "goal 10", at_least=10_000, full=True,
              reason="A world is dense: its trouble comes within some minutes of virtual time, and "
              "not within an hour."),
        Bound("seeds that broke", "broken", "goal 10", at_most=0),
        Bound("interesting states that no seed reached", "states_not_reached", SECOND_MASTER,
              at_most=0, full=True),
    ),
    "bugs": (
        Bound("planted bugs", "planted", "goal 10", at_least=20),
        Bound("planted bugs that were found", "found", "goal 10", at_least="planted"),
    ),
    "disks": (
        Bound("injections", "injections", "goal 8", at_least=300, full=True),
        Bound("false acknowledgements", "false_acks", "goal 8", at_most=0),
        Bound("a stall of the disk", "seconds", "goal 8", at_least=30, unit="s", full=True),
        Bound("all is answered after a stall", "answered_after_s", "goal 8", at_most=10, unit="s"),
        *ledger("goal 8"),
    ),
    "messages": (
        Bound("messages", "messages", "goal 11", at_least=1_000_000, full=True,
              row={"campaign": "bad messages"}),
        Bound("crashes", "crashes", "goal 11", at_most=0),
        Bound("changes by the faulty", "changes_by_the_faulty", "goal 11", at_most=0),
        Bound("growth of the master", "sizes_mib", "goal 11", at_most=5, unit="%", full=True,
              row={"campaign": "bad messages"}, measure=growth_percent),
        Bound("growth of the master that fails", "sizes_with_faults_mib", "goal 11", at_most=5,
              unit="%", full=True, row={"campaign": "bad messages"}, measure=growth_percent),
        Bound("faults of handlers", "faults", SECOND_MASTER, at_least=1000, full=True,
              row={"campaign": "bad messages"}),
        Bound("faults of handlers in the loop", "faults_in_the_loop", SECOND_MASTER, at_least=500,
              full=True, row={"campaign": "bad messages"}),
        Bound("faults after a handler", "faults_after_a_handler", SECOND_MASTER, at_least=100,
              full=True, row={"campaign": "bad messages"}),
        Bound("kinds of requests with faults", "kinds_with_faults", SECOND_MASTER, at_least=5,
              full=True, row={"campaign": "bad messages"}),
        Bound("looks of another user meanwhile", "calm_looks", SECOND_MASTER,
              at_least="least_looks", row={"campaign": "bad messages"}),
        Bound("longest look of another user", "longest_calm_look_s", SECOND_MASTER, at_most=1,
              unit="s", row={"campaign": "bad messages"}),
        Bound("the same while the master fails", "longest_look_s", SECOND_MASTER,
              at_most=5, unit="s", row={"campaign": "bad messages"}),
    ),
    "upgrades": (
        Bound("changes between the last release and this tree", "changes_with_the_last_release",
              "goal 12", at_least=100, full=True),
        Bound("changes of a pair on PostgreSQL, and back", "changes_of_a_pair", SECOND_MASTER,
              at_least=20, full=True),
        *ledger("goal 12"),
    ),
    "repairs": (
        Bound("jobs lost by kills in a change of the schema", "jobs_lost", "goal 12", at_most=0),
        Bound("jobs that a restore killed", "killed", "goal 12", at_most=0),
        Bound("jobs that ran twice", "ran_twice", "goal 12", at_most=0),
        Bound("time between two copies, as the master makes them", "copies_every_s", "goal 12",
              at_most=300, unit="s"),
        Bound("jobs newer than the copy that were reported", "reported", "goal 12",
              at_least="newer_jobs"),
    ),
    "submits": (
        Bound("with 64 in flight", "submits, 64 in flight", "goal 6", at_least=1000, unit="/s",
              reason="Clients and master share two cores. The goal is for a disk of 200 syncs a "
              "second, and the row of the disk says how fast it was."),
        Bound("with 64 in flight, 99 of 100", "submits, 64 in flight, p99", "goal 6", at_most=150,
              unit="ms", reason="Clients and master share two cores."),
    ),
    "crowd": (
        Bound("CPU of the master", "dlq, 5000 agents: CPU of the master", "goal 7", at_most=50,
              unit="%", full=True),
        Bound("memory of the master", "dlq, 5000 agents: memory of the master", "goal 7",
              at_most=700, unit="MiB", full=True),
        Bound("wait of the loop, 99 of 100 rounds",
              "dlq, 5000 agents: round of the loop, p99", "goal 7", at_most=50, unit="ms",
              full=True),
        Bound("all agents are back after a restart",
              "dlq, 5000 agents: all are back after a restart", "goal 7", at_most=30, unit="s",
              full=True,
              reason="All agents live in one process, which shares two cores with the master."),
        Bound("agents wrongly taken for dead", "dlq, * agents: taken for dead", "goal 7",
              at_most=0),
    ),
    "day": (
        Bound("agents", "agents", "goal 7", at_least=5000, full=True),
        Bound("virtual hours", "virtual_hours", "goal 7", at_least=24, full=True),
        Bound("nodes wrongly taken for dead", "taken_for_dead_wrongly", "goal 7", at_most=0),
        Bound("a dead node is noticed", "dead_noticed_within_s", SECOND_MASTER, at_most=32,
              unit="s"),
    ),
    "callers": (
        Bound("unexpected answers", "unexpected", "goal 11", at_most=0),
    ),
    "attackers": (
        Bound("hostile jobs", "hostile_jobs", "goal 11", at_least=200, full=True),
        Bound("walls that fell", "walls_fallen", "goal 11", at_most=0),
        *ledger("goal 11"),
    ),
    "hostile": (
        Bound("runs of six kinds", "runs", "goal 9", at_least=600, full=True),
        Bound("longest gap between heartbeats", "longest_gap_s", "goal 9", at_most=5, unit="s"),
        Bound("what a neighbour loses", "neighbour_loss_*_percent", "goal 9", at_most=5, unit="%",
              reason=SHARED),
        Bound("attempts of a poison job", "poison_attempts", "goal 9",
              at_most=3),
        Bound("nodes lost for good", "nodes_lost", "goal 9", at_most=0),
    ),
    "canaries": (Bound("secrets found elsewhere", "found", "goal 11", at_most=0),),
    "rotation": (
        Bound("agents", "agents", "goal 11", at_least=1000, full=True),
        Bound("jobs lost", "jobs_lost", "goal 11", at_most=0),
        Bound("nodes down", "nodes_down", "goal 11", at_most=0),
    ),
}  # fmt: skip
