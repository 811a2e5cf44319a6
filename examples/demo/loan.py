#!/usr/bin/env python3
"""make demo-loan: a day of inference load in two minutes: servers are lent, trained on, and taken
back under pressure.

The day goes on when its events have happened, so the speed of the machine does not matter. Exits 0
only if every claim held. KEEP=1 leaves the logs.
"""

import re
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import processes
from alone import perform_alone
from cluster import Cluster
from dlq_cli.exit_codes import OK
from proof import ProofFailed
from quick import STAYS, quick, slowness
from screen import Screen
from site_of_jobs import ENDED, Job, Site

OWN = "own-a"
SERVERS = ("inf-1", "inf-2", "inf-3", "inf-4")
STEPS = Path(__file__).resolve().parent.parent / "jobs" / "steps.py"
WITHIN_S = 12
STRETCH = slowness()

LOANS = f"""
[loans]
load = "%s"
every = "1s"
headroom = 0.05
settle = "2s"
within = "{WITHIN_S}s"
"""


@dataclass(frozen=True, slots=True)
class Training:
    """A job that trains until the demo has seen enough of it."""

    name: str
    gpus: int
    saves_in_s: float = 0.0
    flags: tuple[str, ...] = ()


DAY = Training("own-nodes", 8)
AWAY = ("--exclude", OWN)  # these wait for lent servers
PAIR = (Training("left", 4, flags=AWAY), Training("right", 4, flags=AWAY))
WIDE = Training("wide", 16, flags=("--nice", "10", *AWAY))
SLOW = Training("slow-saver", 8, 600.0, AWAY)
ELASTIC = Training("elastic", 8, flags=("--elastic", "8:24:8", *AWAY))
ALL = (DAY, *PAIR, WIDE, SLOW, ELASTIC)
PROMISED = Training("promised", 8)


class Loans(Site):
    """The cluster, the load of its inference side, and the trainings."""

    def __init__(self, cluster: Cluster, screen: Screen, load: Path) -> None:
        super().__init__(cluster, screen)
        self._load = load
        self._ids: dict[str, str] = {}

    def hour(self, clock: str, busy: float, why: str) -> None:
        """From now on the inference side is so busy."""
        self.screen.act(f"{clock}  inference uses {busy:.0%} of its {len(SERVERS)} servers: {why}")
        draft = self._load.with_suffix(".draft")
        draft.write_text(f"{busy}\n")
        draft.rename(self._load)

    def train(self, work: Training) -> None:
        """Until it was enough."""
        more = ("--until", str(self._enough(work)), "--saves-in", str(work.saves_in_s))
        self._submit(work, work.flags, ("--steps", "1", *more))

    def promise(self, work: Training, *flags: str) -> None:
        """Six seconds of training, with a deadline that is promised."""
        asks = ("--work", f"{12 * STRETCH}s", "--wait-admission", *flags)
        told = self._submit(work, asks, ("--steps", "60"))["promise"]
        if told["state"] != "guaranteed":
            raise ProofFailed(f"{work.name} was not guaranteed: {told}")
        self.screen.say(f"  {told['state']}: {told['detail']}")

    def _submit(self, work: Training, asks: tuple[str, ...], steps: tuple[str, ...]) -> Job:
        command = (sys.executable, str(STEPS), *steps)
        _, job = self.submitted(work.name, "--gpus", str(work.gpus), *asks, "--", *command)
        self._ids[work.name] = job["job_id"]
        self.screen.say(
            f"{' '.join(('dlq submit --gpus', str(work.gpus), *asks, '...'))} [{work.name}]"
        )
        return job

    def of(self, work: Training) -> Job:
        return self.job(self._ids[work.name])

    def why(self, work: Training) -> str:
        return self.cluster.dlq("why", self._ids[work.name])

    def story(self, work: Training, kind: str) -> list[Job]:
        """Events of one kind."""
        return [event for event in self.events(self._ids[work.name]) if event["kind"] == kind]

    def output(self, work: Training) -> str:
        return self.cluster.dlq("logs", self._ids[work.name], "-n", "1000")

    def training(self, *works: Training) -> bool:
        """All of them run, and have reported a step."""
        found = {job["job_id"]: job for job in self.jobs()}
        mine = [found[self._ids[work.name]] for work in works]
        return all(job["state"] == "running" and job["progress"] for job in mine)

    def enough(self, *works: Training) -> None:
        """These come to their end."""
        for work in works:
            self._enough(work).touch()
        self.until(
            lambda: all(self.of(work)["state"] in ENDED for work in works),
            f"{', '.join(work.name for work in works)} to end",
        )

    def _enough(self, work: Training) -> Path:
        return self.cluster.root / f"{work.name}.enough"

    def in_state(self, state: str) -> list[str]:
        """Servers of the inference side that are where `dlq admin loan status` says so."""
        servers = self.told("servers", "admin", "loan", "status")
        return [one["node_id"] for one in servers if one["state"] == state]

    def lent(self, count: int) -> None:
        """Wait until the controller has lent this number, and no others are on their way."""
        home = len(SERVERS) - count
        self.until(
            lambda: len(self.in_state("lent")) == count and len(self.in_state("away")) == home,
            f"{count} servers to be lent, and {home} to be home",
        )
        self.screen.say(f"lent: {', '.join(self.in_state('lent')) or 'none'}")


def by_day(site: Loans) -> None:
    """The inference side needs its servers: jobs that do not fit onto the cluster's own node
    wait.
    """
    site.hour("18:00", 0.95, "none is lent")
    site.train(DAY)
    site.until(lambda: site.training(DAY), "the first job to train")
    for work in (*PAIR, WIDE):
        site.train(work)
    site.until(lambda: "not lent" in site.why(WIDE), "the others to wait for servers")
    site.screen.quote(site.why(WIDE))


def by_night(site: Loans) -> None:
    """The load falls: one server is lent, then two more; the head-room stays at home."""
    site.hour("21:00", 0.60, "one is idle beyond the head-room")
    site.lent(1)
    site.until(lambda: site.training(*PAIR), "two jobs to train on it")
    site.hour("01:00", 0.10, "three are idle; the rest of the fourth is the head-room")
    site.lent(3)
    site.until(lambda: site.training(*PAIR, WIDE), "the wide job to train on two more")
    site.screen.quote(site.cluster.dlq("admin", "loan", "status"))


def one_back(site: Loans) -> str:
    """It takes one of the wide job's two servers: one stop is less than two."""
    plan = site.told("plan", "admin", "reclaim", "--count", "1", "--plan")
    stopped = [job["name"] for job in plan["jobs"]]
    if stopped != [WIDE.name] or not plan["proven"]:
        raise ProofFailed(f"a reclaim of one server would stop {stopped}: {plan}")
    site.screen.say("dlq admin reclaim --count 1 --plan")
    site.screen.quote(site.cluster.dlq("admin", "reclaim", "--count", "1", "--plan"))
    site.hour("06:00", 0.30, "one of the three is wanted back")
    site.lent(2)
    told = {work.name: len(site.story(work, "job_reclaimed")) for work in (*PAIR, WIDE)}
    if told != {WIDE.name: 1} | {work.name: 0 for work in PAIR}:
        raise ProofFailed(f"the reclaim of one server has stopped {told}")
    site.train(SLOW)
    site.until(lambda: site.training(*PAIR, SLOW), "another job to train on the freed GPUs")
    site.promise(PROMISED, "--deadline", f"{60 * STRETCH}s")
    return (
        f"one server was wanted of three with jobs: one job was stopped ({WIDE.name}), proven "
        "to be the fewest"
    )


def all_back(site: Loans) -> str:
    """In less time than one job needs to save."""
    soon = site.cluster.ask("dlq", "admin", "reclaim", "--count", "2", "--within", "1s")
    if soon.returncode == OK or len(site.in_state("lent")) != 2:
        raise ProofFailed("two servers with jobs on them were promised within a second")
    site.screen.say("dlq admin reclaim --count 2 --within 1s")
    site.screen.quote(soon.stderr)
    site.hour(
        "08:00", 0.95, f"all are wanted back; a job that has not saved after {WITHIN_S} s is killed"
    )
    began_s = time.monotonic()
    site.lent(0)
    took_s = time.monotonic() - began_s
    return (
        f"both were back {took_s:.0f} s after the load rose, {WITHIN_S} of which one job was "
        "given to save"
    )


def next_night(site: Loans) -> str:
    """All go on, and end; then a job that can do with less does so when one server is wanted
    back.
    """
    site.enough(DAY, PROMISED)
    site.hour("22:00", 0.10, "the next night")
    site.lent(3)
    site.until(lambda: site.training(*PAIR, SLOW), "the stopped jobs to go on")
    site.enough(*PAIR, SLOW)
    site.until(lambda: site.training(WIDE), "the wide job to go on, too")
    site.enough(WIDE)
    site.train(ELASTIC)
    site.until(lambda: site.training(ELASTIC), "an elastic job to train on all that is lent")
    before = site.of(ELASTIC)
    site.screen.say(f"{ELASTIC.name} has {gpus_of(before)} GPUs, on {', '.join(before['nodes'])}")
    site.hour("05:00", 0.30, "one server is wanted back")
    site.lent(2)
    site.until(lambda: site.of(ELASTIC)["attempt_count"] == 2, "the elastic job to go on")
    site.until(lambda: site.training(ELASTIC), "it to train")
    shrunk = gave_up_one(site, before)
    site.enough(ELASTIC)
    site.hour("08:00", 0.95, "the servers go home")
    site.lent(0)
    return shrunk


def gpus_of(job: Job) -> int:
    """That it has now."""
    return int(job["elastic"]["current_gpu_count"] or 0)


def gave_up_one(site: Loans, before: Job) -> str:
    """The elastic job has fewer GPUs now, and was not sent back to the queue for that."""
    had, now = gpus_of(before), site.of(ELASTIC)
    told = [event["data"].get("action") for event in site.story(ELASTIC, "job_reclaimed")]
    if (had, gpus_of(now), told) != (24, 16, ["shrink"]):
        raise ProofFailed(f"{ELASTIC.name} had {had} GPUs and has {gpus_of(now)}: {told}")
    return (
        f"one server was wanted back with all in use: {ELASTIC.name} gave it up, and went on "
        f"with 16 of {had} GPUs"
    )


# --- the results ----------------------------------------------------------------------------


def went_on(site: Loans, work: Training) -> str:
    """It was stopped by a reclaim, once, and each start began after the step that the one before
    had saved.
    """
    outputs = [
        site.cluster.dlq("logs", f"{site.of(work)['job_id']}.{n}", "-n", "1000") for n in (1, 2)
    ]
    saved, begun = (
        re.findall(pattern, text)
        for pattern, text in zip(
            (r"saved after step (\d+)", r"begins after step (\d+)"), outputs, strict=True
        )
    )
    if len(saved) != 1 or saved != begun:
        raise ProofFailed(f"{work.name} saved after steps {saved}, and went on after {begun}")
    return (
        f"{work.name} gave way to a reclaim, and went on after step {saved[0]}, where it had saved"
    )


def started_over(site: Loans, work: Training) -> str:
    """Its save took too long: it was ended, with a reason, and began anew."""
    job, told = site.of(work), site.story(work, "job_reclaimed")
    if job["lost_gpu_seconds"] <= 0.0 or len(told) != 1 or "ended" not in told[0]["cause"]:
        raise ProofFailed(f"{work.name} has lost {job['lost_gpu_seconds']}: {told}")
    return (
        f"{work.name} had not saved after {WITHIN_S} s and began anew: "
        f"{job['lost_gpu_seconds']:.0f} GPU-seconds lost"
    )


def stayed_at_home(site: Loans, work: Training) -> str:
    """Jobs with a promised deadline run on the cluster's own nodes."""
    nodes = [
        node
        for event in site.story(work, "attempt_assigned")
        for node in SERVERS
        if node in str(event)
    ]
    job = site.of(work)
    if nodes or site.story(work, "job_reclaimed") or job["state"] != "completed":
        raise ProofFailed(f"{work.name} is {job['state']}, and was on {nodes}")
    return f"{work.name}, with a promised deadline, ran on {OWN} only"


def all_done(site: Loans) -> str:
    jobs = site.jobs()
    if any(job["state"] != "completed" for job in jobs) or len(jobs) != len(ALL) + 1:
        raise ProofFailed(f"{[(job['name'], job['state']) for job in jobs]}")
    return f"all {len(jobs)} jobs completed, and all {len(SERVERS)} servers are home, proven empty"


def accounted(site: Loans) -> str:
    """Every GPU-second is accounted for, and jobs are charged for their own."""
    site.screen.say("dlq usage --by class,pool")
    site.screen.quote(site.cluster.dlq("usage", "--by", "class,pool"))
    by_pool: dict[str, Job] = {one["pool"]: one for one in site.told("pools", "usage", "--by", "")}
    usages = site.told("usages", "usage", "--by", "pool")
    for one in usages:
        used = by_pool[one["pool"]]["used_gpu_hours"]
        if abs(one["gpu_hours"] - used) > 0.001 or one["gpu_hours"] <= 0.0:
            raise ProofFailed(f"jobs held {used} GPU-hours, and are charged {one}")
    (slow,) = site.told("usages", "usage", "--by", "")
    if slow["preempted_gpu_hours"] <= 0.0:
        raise ProofFailed(f"the loss of {SLOW.name} is not accounted for: {slow}")
    held = sum(one["gpu_hours"] for one in usages)
    return (
        f"jobs are charged all {held:.2f} GPU-hours they held, "
        f"{slow['preempted_gpu_hours']:.2f} of them as lost to reclaims"
    )


def perform(site: Loans) -> list[str]:
    """All acts; their results, as sentences."""
    by_day(site)
    by_night(site)
    proofs = [one_back(site), all_back(site), next_night(site)]
    proofs += [went_on(site, work) for work in (*PAIR, WIDE)]
    proofs += [started_over(site, SLOW), stayed_at_home(site, PROMISED)]
    return [*proofs, accounted(site), all_done(site)]


def show(root: Path) -> None:
    with ExitStack() as opened:
        screen = opened.enter_context(Screen())
        screen.act(
            f"A master, a node of our own and {len(SERVERS)} servers of the inference side, of "
            "eight virtual GPUs each"
        )
        load = root / "load"
        load.write_text("0.95\n")
        cluster = opened.enter_context(
            Cluster(
                root,
                settings=quick(LOANS % load, settings=STAYS),
                nodes=(OWN, *SERVERS),
                lenders=frozenset(SERVERS),
            )
        )
        proofs = perform(Loans(cluster, screen, load))
        opened.close()
    processes.kill_all(root)
    screen.proved(proofs)
    print(f"all of it in {screen.elapsed_s:.0f} s")


if __name__ == "__main__":
    sys.exit(perform_alone("demo-loan", show))
