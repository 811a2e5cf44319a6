"""The claims of docs/reliability.md, and the commands that try to break each of them.

The bounds of each stand in goals.py.

A campaign is one or more commands, run from the root of the repository. Each appends its figures to
the file of DLQ_PROOFS (tests/support/proofs.py), or prints a benchmark's report with `--json`. The
size of a run stands in its environment, so the short and the full form run the same code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.prove.bounds import Bound
from benchmarks.prove.goals import BOUNDS

# Planted bugs that take hundreds of seeds: too many for a short form.
RARE = (
    "--but", "reads_after_its_lease", "--but", "lets_go_for_ever", "--but",
    "greets_before_the_ends", "--but", "forgets_requests_of_callers_that_left",
)  # fmt: skip
PYTEST = (sys.executable, "-m", "pytest", "-q", "-s", "-o", "faulthandler_timeout=0")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a campaign; `short` and `full` are its environment in either form."""

    words: Sequence[str]
    short: Mapping[str, str] = field(default_factory=dict)
    full: Mapping[str, str] = field(default_factory=dict)
    short_words: Sequence[str] = ()  # after the others, in the short form
    full_words: Sequence[str] = ()
    is_benchmark: bool = False  # it prints one report as JSON
    size: str = ""  # the variable that a part of the full form divides; "": it is one piece
    many_seeds: bool = False  # each of that size has a seed of its own

    def argv(self, *, full: bool) -> list[str]:
        """The words of one form."""
        last = self.full_words if full else self.short_words
        return [*self.words, *last, *(("--json",) if self.is_benchmark else ())]

    def environment(self, *, full: bool) -> Mapping[str, str]:
        """The size of one form."""
        return self.full if full else self.short

    def whole(self) -> int:
        """The size of the full form; 0: it is one piece."""
        return int(self.full[self.size]) if self.size else 0

    def part(self, number: int, of: int) -> Command:
        """A part of the full form, counted from 1, with seeds that no other part has. Numbers above
        `of` go on after the full form.
        """
        begin, end = self.whole() * (number - 1) // of, self.whole() * number // of
        seed = begin + 1 if self.many_seeds else number
        full = {**self.full, self.size: str(end - begin), "SEED": str(seed)}
        return replace(self, full=full)


@dataclass(frozen=True, slots=True)
class Campaign:
    """A claim of reliability, its goal as a sentence, and what runs to break it."""

    name: str
    claim: str
    goal: str
    commands: Sequence[Command]

    @property
    def bounds(self) -> Sequence[Bound]:
        """The bounds of its figures."""
        return BOUNDS.get(self.name, ())


def tests(
    path: str, *names: str, short: Mapping[str, str], full: Mapping[str, str], size: str
) -> Command:
    """Tests of the torture in one file; all of it, or those whose names hold one of the words.
    `size`: see `Command`.
    """
    chosen = ("-k", " or ".join(names)) if names else ()
    return Command((*PYTEST, "-m", "torture", path, *chosen), short, full, size=size)


def benchmark(
    name: str, *words: str, short: Sequence[str] = (), full: Sequence[str] = ()
) -> Command:
    """A benchmark with its options."""
    command = (sys.executable, "-m", f"benchmarks.{name}", *words)
    return Command(command, short_words=short, full_words=full, is_benchmark=True)


CAMPAIGNS = (
    Campaign(
        "kills",
        "Kills of the master and of agents lose no accepted job and run none twice.",
        "1,000 kills of the master at random moments, and deaths at all named failpoints, over "
        "10,000 jobs. 1,000 kills of agents. 0 accepted jobs lost, 0 run twice, 0 running jobs "
        "killed.",
        (
            tests(
                "tests/fault/test_torture.py", "many_kills", "failpoint",
                short={"N": "20", "PASSAGES": "1"}, full={"N": "1000", "PASSAGES": "25"}, size="N",
            ),
        ),
    ),
    Campaign(
        "agents",
        "A new agent finds all jobs of its dead predecessor, and tells every exit code.",
        "1,000 kills of one agent: 100 % of its jobs found again, 0 exit codes lost, 0 jobs "
        "started twice.",
        (
            tests(
                "tests/fault/test_agent_kills.py",
                short={"N": "30"}, full={"N": "1000"}, size="N",
            ),
        ),
    ),
    Campaign(
        "partitions",
        "Lines that are cut in one or both directions, or flap, disturb no job.",
        "500 random cuts of 1 to 600 s, in both directions, in one, or again and again. 0 attempts "
        "that overlap, and no job put back before its hold ends.",
        (
            tests(
                "tests/fault/test_partitions.py",
                short={"N": "60", "LONGEST_S": "20"},
                full={"N": "500", "LONGEST_S": "600", "AGENTS": "24"},
                size="N",
            ),
        ),
    ),
    Campaign(
        "silences",
        "Half of the nodes that fall silent at once lose no job; one node alone loses its jobs in "
        "time.",
        "Half of the nodes cut at once: 0 requeues. One cut node: its jobs are requeued 5 s after "
        "their hold, +- 5 s. All is well 30 s after the line is.",
        (
            tests(
                "tests/fault/test_silences.py",
                short={"CUTS": "1", "LONGEST_S": "10"}, full={"CUTS": "20", "LONGEST_S": "60"},
                size="CUTS",
            ),
        ),
    ),
    Campaign(
        "replies",
        "A request that is asked again makes one job.",
        "100,000 submits with a tenth of the answers lost make exactly 100,000 jobs.",
        (
            tests(
                "tests/fault/test_lost_replies.py",
                short={"SUBMITS": "5000"}, full={"SUBMITS": "100000"}, size="SUBMITS",
            ),
        ),
    ),
    Campaign(
        "takeovers",
        "A second master on PostgreSQL takes over, and no job notices, also when the database "
        "changes its primary or has lost commits.",
        "200 takeovers, each within 10 s: no job lost or twice, and no write of a former leader. 1 "
        "s when planned, 3 s after a death, 6 s after a pause or a cut. 9 s after the loss of the "
        "primary.",
        (
            tests(
                "tests/fault/test_takeovers.py",
                short={"TAKEOVERS": "8"}, full={"TAKEOVERS": "200"}, size="TAKEOVERS",
            ),
        ),
    ),
    Campaign(
        "world",
        "A whole cluster in one process keeps its promises under every fault that a seed draws.",
        "10,000 seeds, and once 100,000: not one breaks an invariant.",
        (
            Command(
                (sys.executable, "-m", "world", "seeds"),
                {"PYTHONPATH": "tests", "SEEDS": "50"},
                {"PYTHONPATH": "tests", "SEEDS": "10000"},
                size="SEEDS", many_seeds=True,
            ),
        ),
    ),
    Campaign(
        "bugs",
        "The world finds bugs: known ones are planted in it, one at a time.",
        "Each of the planted bugs is found.",
        (
            Command(
                (sys.executable, "-m", "world", "bugs"),
                {"PYTHONPATH": "tests", "MOST": "120"},
                {"PYTHONPATH": "tests", "MOST": "1000", "PLANTED": "57"},
                RARE, size="PLANTED", many_seeds=True,
            ),
        ),
    ),
    Campaign(
        "disks",
        "A bad disk never makes an answer false, and the message names the file and the remedy.",
        "300 injections, stalls of 30 s among them: 0 acknowledged jobs lost, 0 false "
        "acknowledgements, 0 empty starts in silence. Back within 10 s after the disk is.",
        (
            tests(
                "tests/fault/test_disks.py",
                short={"N": "30", "STALL_S": "2"}, full={"N": "300", "STALL_S": "30"}, size="N",
            ),
        ),
    ),
    Campaign(
        "messages",
        "A bad message hurts its sender only.",
        "1,000,000 messages: 0 crashes, 0 hangs, 0 changes by the faulty, and at most 5 % growth. "
        "1,000 faults of handlers among them.",
        (
            tests(
                "tests/fuzz",
                short={"MESSAGES": "20000"}, full={"MESSAGES": "1000000"}, size="MESSAGES",
            ),
        ),
    ),
    Campaign(
        "upgrades",
        "Releases take turns under load, in both directions, and lose nothing.",
        "100 changes between the last release and this tree, both ways: 0 jobs lost, 0 twice. The "
        "way back to the last release is gone without jobs, whose records its agents do not read.",
        (tests("tests/fault/test_upgrades.py", short={"N": "6"}, full={"N": "100"}, size="N"),),
    ),
    Campaign(
        "repairs",
        "A change of the schema that is killed goes on at the next start, and a restored copy "
        "kills no job.",
        "kill -9 at every statement from every former schema: 0 jobs lost. Restores under living "
        "agents: at most 5 minutes lost, 0 jobs killed, all newer ones reported.",
        (
            tests(
                "tests/fault/test_repairs.py",
                short={"SCHEMAS": "2", "RESTORES": "1"}, full={"SCHEMAS": "100", "RESTORES": "20"},
                size="",
            ),
        ),
    ),
    Campaign(
        "restarts",
        "A master that starts again serves at once, whatever waits.",
        "100,000 waiting jobs and 100,000 that have ended: serving within 5 s.",
        (
            benchmark(
                "live.restart", short=("--jobs", "10000", "--ended", "10000"),
                full=("--jobs", "100000", "--ended", "100000"),
            ),
        ),
    ),
    Campaign(
        "submits",
        "A submission is on the disk before its answer.",
        "1,000 durable submits a second with 64 in flight where the disk syncs 200 times a second.",
        (benchmark("live.submits"),),
    ),
    Campaign(
        "pair",
        "A pair on PostgreSQL answers a submission when two servers have it on their disks.",
        "Submits a second on the pair beside those on SQLite, on the same disk.",
        (benchmark("store.pair", short=("--count", "400")),),
    ),
    Campaign(
        "shipping",
        "A lost host costs seconds of what was acknowledged, and minutes to be back.",
        "Kills of the master and its shipping under load: nothing is lost that was acknowledged "
        "before the told instant.",
        (
            Command((*PYTEST, "-m", "", "tests/fault/test_shipping_live.py", "-k", "mid_load")),
            benchmark(
                "store.shipping",
                short=("--rounds", "3", "--jobs", "2000", "--pairs", "0"),
                full=("--pairs", "0"),
            ),
        ),
    ),
    Campaign(
        "crowd",
        "Thousands of agents hold their lines to one master.",
        "5,000 agents that beat every 5 s: the master at 50 % of a core and 700 MiB at most. Waits "
        "of its loop within 50 ms (99 of 100). All are back 30 s after a restart, and 0 are taken "
        "for dead.",
        (
            benchmark(
                "live.agents", short=("--agents", "1000", "--seconds", "15"),
                full=("--agents", "5000", "--seconds", "1800"),
            ),
        ),
    ),
    Campaign(
        "day",
        "The core of the master takes no node that beats for dead, and notices a dead one in time.",
        "24 hours of 5,000 nodes on virtual time, with crashes of the master: none wrongly. Their "
        "heartbeats go into the core as stimuli. No code of an agent runs, and no line is there.",
        (
            tests(
                "tests/fault/test_virtual_day.py",
                short={"AGENTS": "500", "HOURS": "3"}, full={"AGENTS": "5000", "HOURS": "24"},
                size="HOURS",
            ),
        ),
    ),
    Campaign(
        "callers",
        "Every method refuses every caller without the right to it.",
        "Every method with every role and every bad credential: 0 unexpected answers.",
        (
            Command(
                (*PYTEST, "-m", "attack", "tests/attack/test_authorization.py"),
                {"MINUTES": "2"}, {"MINUTES": "10"},
            ),
        ),
    ),
    Campaign(
        "attackers",
        "A user and a node that mean harm, beside honest work on daemons that are killed, change "
        "nothing that is not theirs.",
        "200 hostile jobs: no secret read, no file changed, no right of root, no process left.",
        (
            Command(
                (*PYTEST, "-m", "attack", "tests/attack/test_everything_at_once.py"),
                {"MINUTES": "2"}, {"MINUTES": "30"},
            ),
        ),
    ),
    Campaign(
        "hostile",
        "Jobs that mean harm end as they must, and no node is lost by them.",
        "100 each of fork bombs, memory hogs, floods of output, undying children, killers of "
        "agents and poison. Heartbeats within 5 s, and neighbours lose at most 5 %. Poison is held "
        "after 3 attempts at most, and 0 nodes are lost.",
        (
            tests(
                "tests/fault/test_hostile_jobs.py",
                short={"RUNS": "2"}, full={"RUNS": "100"}, size="RUNS",
            ),
        ),
    ),
    Campaign(
        "canaries",
        "Tokens, private keys, passphrases, passwords and variables of jobs are where they belong, "
        "and nowhere else. Variables may be in the database, its copies and an agent's records: "
        "they start the job again.",
        "0 found in databases, copies, records, logs, command lines, dumps and metrics.",
        (
            tests("tests/fault/test_canaries.py", short={}, full={}, size=""),
            Command(
                (*PYTEST, "-m", "podman", "tests/e2e/test_podman.py", "-k", "no_secret_is_anywhere")
            ),
        ),
    ),
    Campaign(
        "rotation",
        "The CA changes under running jobs.",
        "1,000 agents, each with a job: 0 jobs lost, and all agents come back.",
        (
            tests(
                "tests/fault/test_rotation_crowd.py",
                short={"AGENTS": "50"}, full={"AGENTS": "1000"}, size="",
            ),
        ),
    ),
)  # fmt: skip
