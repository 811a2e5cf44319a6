#!/usr/bin/env python3
"""make demo-many: three clusters of virtual GPUs behind one door: offers, one cluster cut off, and
one emptied by its operator. The node of one of them is a pilot inside a real Slurm.

Exits 0 only if no job was lost or doubled, and each promise was kept, refused, or given up in time.
Jobs that moved are judged like all others. It prints where each job ran, and why. JOBS=200 says how
many jobs; KEEP=1 leaves the logs. Without Slurm, or without root, it says so, and takes a plain
cluster instead.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import processes
from alone import perform_alone
from cluster import BIN, MASTER, Cluster, wait_until
from deadlines_kept import StayAt, chain, offered_deadline, outcome
from dlq_client.line.identity import load_identity, save_identity
from in_slurm import ClusterInSlurm, why_not
from proof import ProofFailed
from quick import STAYS, quick, slowness
from screen import Screen
from site_of_jobs import ENDED, ENOUGH_S, Job
from where_jobs_ran import JobThatRan, sums, table

# Each with its price of a GPU-hour.
PRICES = {"lab": 0.0, "roof": 0.3, "campus": 0.2}
CUT_OFF, EMPTIED, IN_SLURM = "roof", "lab", "campus"
STEPS = Path(__file__).resolve().parents[1] / "jobs" / "steps.py"
IDLE_ROUNDS = 5  # rounds that move nothing: a job may just have changed
WIDE = 4  # jobs that fill the cluster that is to be emptied
NODE = "node-1"
GPUS = 8
STRETCH = slowness()
# A master that stands still for a while is no reason to give its nodes up.
PATIENT = """
ttl = "60s"
unreachable = "90s"
hold = "600s"
"""
AT_A_TIME = 2  # questions of one user that a master takes at a time
TRIES = 5  # of a submission that no cluster has answered in time
UNAVAILABLE = 69
# A promise that ends this soon could not outlive a master that stands still.
PRESSING_S = 180.0 * STRETCH
EVERY_S = 2.0  # between two looks at a cluster


@dataclass(frozen=True, slots=True)
class Ask:
    """One job: it sleeps, and may ask for a deadline (seconds from its submission)."""

    name: str
    gpus: int
    run_s: int
    deadline_s: int | None

    def words(self) -> list[str]:
        due = () if self.deadline_s is None else ("--deadline", f"{self.deadline_s}s")
        work = ("--work", f"{2 * self.run_s}s")
        return ["--gpus", str(self.gpus), *work, *due, "--", "sleep", str(self.run_s)]


def asks(count: int) -> list[Ask]:
    """Most have time enough, some little or none, and some have no deadline."""
    draw = random.Random(26)
    made = []
    for number in range(count):
        run_s = draw.randint(2, 10)
        kind = draw.random()
        due_s = None
        if kind < 0.8:
            # The last ones are too late from the start: they ask for twice their run time.
            due_s = 900 * STRETCH if kind < 0.55 else 60 * STRETCH if kind < 0.7 else run_s
        made.append(Ask(f"job-{number:03d}", draw.choice((1, 1, 2, 2, 4, 8)), run_s, due_s))
    return made


@dataclass
class Door:
    """The user with the list of clusters."""

    root: Path
    clusters: dict[str, Cluster]
    screen: Screen
    handed: dict[str, Job] = field(default_factory=dict)  # the hand-over of each job, by name

    def write_list(self) -> None:
        identity = load_identity(next(iter(self.clusters.values())).home)
        assert identity is not None
        save_identity(self.root / "me", identity)
        tables = [
            f'[clusters.{name}]\nhome = "{one.home}"\nprice_per_gpu_hour = {PRICES[name]}\n'
            f'storage = ["{self.root / "shared"}"]\n'
            for name, one in self.clusters.items()
        ]
        (self.root / "me" / "clusters.toml").write_text("\n".join(tables))

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One `dlq` of this user, with any exit code."""
        environment = {"PATH": os.environ["PATH"], "DLQ_HOME": str(self.root / "me")}
        words = (str(BIN / "dlq"), *words)
        return subprocess.run(words, env=environment, capture_output=True, text=True)

    def told(self, what: str, *words: str) -> Any:
        """One key of a command's JSON output; ProofFailed if it fails."""
        done = self.ask(*words, "--json")
        if done.returncode:
            raise ProofFailed(f"dlq {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)[what]

    def submit(self, ask: Ask, *, to: str = "any", within: str = "20s") -> None:
        """Hand one job over. If no cluster answers in time, it is tried again under its key."""
        given = ("--to", to, "--within", within, "--json", "-J", ask.name, "-D", "/tmp")
        words = ("submit", *given, "--request-id", ask.name, *ask.words())
        done, tries = self.ask(*words), 1
        while done.returncode == UNAVAILABLE and tries < TRIES:
            done, tries = self.ask(*words), tries + 1
        if done.returncode:
            raise ProofFailed(f"{ask.name} was not taken: {done.stderr}")
        self.handed[ask.name] = json.loads(done.stdout)["handover"]

    def submit_all(self, some: Sequence[Ask], *, to: str = "any", within: str = "20s") -> None:
        """Hand these over, a few at a time, and say where they are."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(lambda ask: self.submit(ask, to=to, within=within), some))
        counts = Counter(self.handed[ask.name]["cluster"] for ask in some)
        told = ", ".join(f"{count} to {name}" for name, count in sorted(counts.items()))
        self.screen.say(f"{len(some)} jobs are handed over: {told}")

    def jobs(self, cluster: str) -> list[Job]:
        """All jobs of a cluster, also ended ones."""
        told = self.clusters[cluster].dlq("status", "--since", "all", "--json")
        found: list[Job] = json.loads(told)["jobs"]
        return found

    def until(self, cluster: str, holds: Callable[[Job], object], what: str) -> None:
        """Wait until it holds of all jobs of a cluster."""
        wait_until(
            lambda: all(holds(job) for job in self.jobs(cluster)),
            what, patience_s=ENOUGH_S, every_s=EVERY_S,
        )  # fmt: skip


def cut_off(door: Door, some: Sequence[Ask]) -> str:
    """A master stands still: it is silent, and its jobs go on."""
    door.until(CUT_OFF, lambda job: not _presses(job), "deadlines that are too close")
    door.screen.act(f"The master of {CUT_OFF} stands still (SIGSTOP), and more jobs come")
    door.clusters[CUT_OFF].signal(MASTER, signal.SIGSTOP)
    try:
        door.submit_all(some, within="3s")
    finally:
        door.clusters[CUT_OFF].signal(MASTER, signal.SIGCONT)
    for ask in some:
        states = {one["cluster"]: one["state"] for one in door.handed[ask.name]["offers"]}
        if states[CUT_OFF] != "silent" or door.handed[ask.name]["cluster"] == CUT_OFF:
            raise ProofFailed(f"{ask.name}: {CUT_OFF} stood still, and is {states[CUT_OFF]}")
    return f"{len(some)} jobs went to the two others while {CUT_OFF} stood still"


def _presses(job: Job) -> bool:
    """It has been promised a deadline so soon that it cannot wait for a master."""
    promise = job["promise"]
    if promise is None or promise["guaranteed_index"] is None or job["state"] in ENDED:
        return False
    due = datetime.fromisoformat(promise["deadlines"][promise["guaranteed_index"]]["due_time"])
    return due.timestamp() < time.time() + PRESSING_S


def training(door: Door) -> None:
    """A training runs at the cluster that will be emptied. It saves when it is asked to."""
    (door.root / "shared").mkdir()
    words = ("--checkpoint-dir", str(door.root / "shared" / "run"), "--work", "60s", "--gpus", "1")
    steps = (sys.executable, str(STEPS), "--steps", "20", "--until", str(door.root / "enough"))
    given = ("--to", EMPTIED, "--json", "-J", "training", "-D", "/tmp", *words, "--", *steps)
    done = door.ask("submit", *given)
    if done.returncode:
        raise ProofFailed(f"the training was not taken: {done.stderr}")
    door.handed["training"] = json.loads(done.stdout)["handover"]
    name = door.handed["training"]["global_name"]
    wait_until(lambda: "begins" in door.ask("logs", name).stdout, "the training to run")


def empty(door: Door) -> list[str]:
    """An operator reserves all nodes of a cluster, and its jobs move on to the others."""
    door.screen.act(f"An operator empties {EMPTIED}: its jobs move to the others")
    training(door)
    for number in range(WIDE):  # so that some wait
        due_s = 900 * STRETCH if number % 2 else None
        door.submit(Ask(f"wide-{number}", GPUS, 4, due_s), to=EMPTIED)
    reason = ("--reason", "the demo empties it", "-y")
    door.clusters[EMPTIED].dlq("admin", "reserve", "--all", "--for", "2h", *reason)
    door.until(EMPTIED, lambda job: not job["attempt_state"], "running jobs to save and leave")
    moved, told, idle = list[str](), "", 0
    while waiting := _waiting(door):
        done = door.ask("move", "--leave", EMPTIED, "--within", "20s")
        moved += done.stdout.splitlines()
        told, idle = done.stderr, 0 if done.stdout else idle + 1
        if idle == IDLE_ROUNDS:
            numbers = ", ".join(str(job["job_id"]) for job in waiting)
            raise ProofFailed(f"{EMPTIED} is not empty, and has {numbers}: {told}")
    for line in moved:
        door.screen.say(line)
    for hand in door.told("handovers", "handovers"):
        if hand["moved_from"] and hand["state"] == "placed":
            door.handed[hand["name"]] = hand
    (door.root / "enough").touch()
    name = door.handed["training"]["global_name"]
    if name.startswith(EMPTIED):
        raise ProofFailed("the training has not moved")
    door.ask("wait", name)
    step = door.ask("logs", name).stdout.partition("begins after step ")[2].partition("\n")[0]
    if not int(step or 0):
        raise ProofFailed("the training began anew")
    return [
        f"{len(moved)} jobs moved away from {EMPTIED}, and none is left there",
        f"the training among them went on at {name.partition(':')[0]} after step {step}",
    ]


def _waiting(door: Door) -> list[Job]:
    return [job for job in door.jobs(EMPTIED) if job["state"] == "queued"]


def judge(door: Door, expected: int) -> list[JobThatRan]:
    """Every job has completed once, and every promise was kept, refused or given up in time."""
    if len(door.handed) != expected:
        raise ProofFailed(f"{expected} jobs were to be handed over, and {len(door.handed)} were")
    there = {f"{at}:{job['job_id']}": job for at in door.clusters for job in door.jobs(at)}
    events: dict[str, list[Job]] = {name: [] for name in there}
    for at, one in door.clusters.items():
        for event in json.loads(one.dlq("events", "--type", "promise_*", "--json"))["events"]:
            events[f"{at}:{event['job_id']}"].append(event)
    made = {hand["global_name"]: hand for hand in door.told("handovers", "handovers")}
    ran = []
    for name, hand in sorted(door.handed.items()):
        hands = [*chain(hand, made)][::-1]
        lost = [one["global_name"] for one in hands if one["global_name"] not in there]
        if lost:
            raise ProofFailed(f"{name} is not where its hand-over says: {lost}")
        stays = [
            StayAt(one["cluster"], there.pop(at), events[at], offered_deadline(one))
            for one in hands
            for at in [one["global_name"]]
        ]
        *left, last = stays
        if last.job["state"] != "completed" or any(one.job["state"] != "cancelled" for one in left):
            told = ", ".join(f"{one.job['state']} at {one.cluster}" for one in stays)
            raise ProofFailed(f"{name} has not completed once: {told}")
        came_from = left[-1].cluster if left else ""
        ran.append(JobThatRan(hand, last.cluster, came_from, outcome(stays, EMPTIED)))
    if there:
        raise ProofFailed(f"jobs are there of no hand-over: {', '.join(there)}")
    return ran


def perform(door: Door, count: int) -> tuple[list[str], list[JobThatRan]]:
    """All acts; their results, as sentences, and where each job ran."""
    every = asks(count)
    half, tenth = count // 2, max(1, count // 10)
    door.screen.act(f"{half} jobs come to the door; most of them have deadlines")
    door.submit_all(every[:half])
    proofs = [cut_off(door, every[half : half + tenth])]
    proofs += empty(door)
    door.screen.act("The rest of the jobs comes, and all run to their ends")
    # The emptied cluster would be asked too, and foresee its hours without work for each job.
    others = ",".join(name for name in PRICES if name != EMPTIED)
    door.submit_all(every[half + tenth :], to=others)
    for name in door.clusters:
        door.until(name, lambda job: job["state"] in ENDED, f"all jobs of {name} to end")
    open_ = [hand for hand in door.told("handovers", "handovers") if hand["state"] == "open"]
    if open_:
        raise ProofFailed(f"hand-overs are open: {open_}")
    ran = judge(door, count + WIDE + 1)
    return [*proofs, *sums(ran)], ran


def show(root: Path) -> None:
    began_s, count = time.monotonic(), int(os.environ.get("JOBS") or 200)
    without = why_not()
    with ExitStack() as opened:
        screen = opened.enter_context(Screen())
        screen.act("Three clusters start: each has a master, its twin and eight virtual GPUs")
        screen.say(
            f"{IN_SLURM} is a plain cluster: {without}"
            if without
            else f"the node of {IN_SLURM} is a pilot: a job of a real Slurm with eight GPUs"
        )
        clusters = {}
        settings = quick(lease=PATIENT, settings=STAYS, stretch=STRETCH, twin=True)
        for name in PRICES:
            (root / name).mkdir()
            kind = ClusterInSlurm if name == IN_SLURM and not without else Cluster
            clusters[name] = kind(root / name, settings=settings, nodes=(NODE,))
            opened.push(clusters[name])  # also one that has not quite begun is stopped
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: one.__enter__(), clusters.values()))
        door = Door(root, clusters, screen)
        door.write_list()
        proofs, ran = perform(door, count)
        opened.close()
    processes.kill_all(root)
    print(table(ran, list(PRICES)))
    screen.proved(proofs)
    print(f"all of it in {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    sys.exit(perform_alone("demo-many", show))
