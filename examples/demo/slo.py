#!/usr/bin/env python3
"""make demo-slo: deadlines on a full cluster of virtual GPUs: promised and kept, refused with an
offer, given up.

Exits 0 only if every claim held, on a busy machine too: all times are stretched there. KEEP=1
leaves the logs.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import processes
from alone import perform_alone
from cluster import Cluster
from dlq_cli.exit_codes import OK, UNGUARANTEED
from proof import ProofFailed
from quick import quick, slowness
from screen import Screen
from site_of_jobs import ENDED, Job, Site

NODES = ("node-a", "node-b", "node-c")
STEPS = Path(__file__).resolve().parent.parent / "jobs" / "steps.py"
STEP_S = 0.1

STRETCH = slowness()
# A node is given up after ten seconds of silence.
SILENCE = f'''
ttl = "{4 * STRETCH}s"
unreachable = "{6 * STRETCH}s"
hold = "{10 * STRETCH}s"
hold_margin = "1s"
'''
# An offer may be too early once it is asked for, on a slow machine: then there is a new offer.
MOST_OFFERS = 5


@dataclass(frozen=True, slots=True)
class Ask:
    """One job at its submission: it runs for `run_s`, and names 12 s if it has a deadline (times
    STRETCH).
    """

    name: str
    gpus: int
    run_s: float
    flags: tuple[str, ...] = ()

    def words(self) -> list[str]:
        work = f"{12 * STRETCH}s"
        asks = ("--wait-admission", "--work", work, *self.flags) if self.flags else ()
        steps = str(round(self.run_s * STRETCH / STEP_S))
        return [
            "--gpus", str(self.gpus), *asks, "--", sys.executable, str(STEPS), "--steps", steps, "--seconds", str(STEP_S),  # noqa: E501
        ]  # fmt: skip


BEST_EFFORT = tuple(Ask(f"best-effort-{number}", 8, 20.0) for number in (1, 2, 3))
# Two of these cannot both end by 30 s, whenever a slot begins; one can.
WIDE = Ask("wide", 24, 6.0, ("--deadline", f"{30 * STRETCH}s"))
SOFT = Ask("soft", 16, 8.0, ("--soft-deadline", f"{80 * STRETCH}s:100,+25%:50"))
STRICT = Ask("strict", 8, 8.0, ("--deadline", f"{100 * STRETCH}s"))


def too_early(deadline: str) -> Ask:
    """Like `wide`, which came first; it is not to run once it would be late."""
    return Ask("second-wide", 24, 8.0, ("--deadline", deadline, "--on-miss", "cancel"))


class Promises(Site):
    """The requests and promises of the demo."""

    def submit(self, ask: Ask) -> tuple[int, Job]:
        """The exit code, and the job once it has been judged."""
        code, job = self.submitted(ask.name, *ask.words(), may=frozenset({OK, UNGUARANTEED}))
        self.screen.say(f"{' '.join(('dlq submit', *ask.flags, '...'))} [{ask.name}]")
        if ask.flags:
            promise = job["promise"]
            self.screen.say(f"  exit code {code}, {promise['state']}: {promise['detail']}")
        return code, job


def fill(site: Promises) -> None:
    site.screen.act("Best-effort jobs fill all 24 GPUs")
    ids = {site.submit(ask)[1]["job_id"] for ask in BEST_EFFORT}
    site.until(
        lambda: all(job["state"] == "running" for job in site.jobs() if job["job_id"] in ids),
        "the best-effort jobs to run",
    )


def promise(site: Promises) -> list[Job]:
    """Strict and soft deadlines on the full cluster; all of them are guaranteed."""
    site.screen.act("Jobs with deadlines come: strict ones and a soft one")
    made = []
    for ask in (WIDE, SOFT, STRICT):
        code, job = site.submit(ask)
        if code != OK or job["promise"]["state"] != "guaranteed":
            raise ProofFailed(f"{ask.name} was not guaranteed: {job['promise']}")
        made.append(job)
    return made


def refuse(site: Promises, first: Job) -> Job:
    """A job that cannot be in time beside the first gets an offer; the offer is then accepted."""
    site.screen.act("Another job asks for the promised GPUs")
    due = datetime.fromisoformat(first["promise"]["deadlines"][0]["due_time"])
    too_soon = (due - timedelta(seconds=1)).astimezone(UTC).isoformat()
    code, job = site.submit(too_early(too_soon))
    if code == OK:
        raise ProofFailed(
            f"a deadline was promised that cannot be kept beside {first['name']}: {job}"
        )
    for _ in range(MOST_OFFERS):
        told = job["promise"]
        if told["state"] != "unguaranteed" or not told["earliest_time"]:
            raise ProofFailed(f"it was not refused with an offer: exit code {code}, {told}")
        site.cluster.dlq("cancel", job["job_id"])
        site.screen.say(f"it is cancelled, and asks for the offer: {told['earliest_time']}")
        code, job = site.submit(too_early(told["earliest_time"]))
        if code == OK:
            return job
    raise ProofFailed(f"the offer was then refused, {MOST_OFFERS} times: {job['promise']}")


def lose_a_node(site: Promises, root: Path, first: Job, others: Sequence[Job]) -> str:
    """Once the first promise is kept: the agent of a node with a promised job is killed, and all
    that runs there.
    """
    ids = {job["job_id"] for job in others}

    hosts: list[str] = []

    def seen() -> list[str]:
        running = [job for job in site.jobs() if job["job_id"] in ids and job["state"] == "running"]
        hosts[:] = [node for job in running for node in job["nodes"]]
        return hosts

    site.until(lambda: site.job(first["job_id"])["state"] in ENDED, f"{first['name']} to end")
    site.until(seen, "a promised job to run")
    node = hosts[0]
    site.screen.act(f"kill -9 of the agent of {node}, and of everything that runs there")
    site.cluster.kill(node)
    for found in processes.belonging_to(root / node):
        processes.kill(found.pid)
    return node


def at_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def kept(site: Promises, job_id: str) -> str:
    """A job with a promised deadline, never given up, has ended by then."""
    job = site.job(job_id)
    index = job["promise"]["guaranteed_index"]
    broken = [event for event in site.events(job_id) if event["kind"] == "promise_broken"]
    if broken or index is None or job["state"] != "completed":
        raise ProofFailed(f"{job['name']} is {job['state']}, its promise {job['promise']}")
    spare_s = at_s(job["promise"]["deadlines"][index]["due_time"]) - at_s(job["end_time"])
    if spare_s < 0.0:
        raise ProofFailed(
            f"{job['name']} was promised its deadline and ended {-spare_s:.1f} s late"
        )
    again = f", started {job['attempt_count']} times" if job["attempt_count"] > 1 else ""
    return (
        f"{job['name']} ended {spare_s:.0f} s before deadline {index + 1} that it was "
        f"promised{again}"
    )


def given_up(site: Promises, job_id: str, node: str) -> str:
    """A promise that no plan can keep any more was given up while there was time left."""
    job = site.job(job_id)
    broken = [event for event in site.events(job_id) if event["kind"] == "promise_broken"]
    if not broken or job["state"] != "cancelled":
        raise ProofFailed(f"{job['name']} is {job['state']}: {site.events(job_id)}")
    early_s = at_s(job["promise"]["deadlines"][0]["due_time"]) - at_s(broken[0]["event_time"])
    if early_s <= 0.0:
        raise ProofFailed(f"{job['name']} was told {-early_s:.1f} s after its deadline")
    return (
        f"{job['name']} wants 24 GPUs, and {node} is gone: told {early_s:.0f} s before its "
        "deadline, then "
        "ended, as --on-miss cancel asks"
    )


def perform(site: Promises, root: Path) -> list[str]:
    """All acts; their results, as sentences."""
    fill(site)
    wide, soft, strict = promise(site)
    second = refuse(site, wide)
    node = lose_a_node(site, root, wide, (soft, strict))
    site.until(lambda: all(job["state"] in ENDED for job in site.jobs()), "all jobs to end")
    proofs = [kept(site, job["job_id"]) for job in (wide, soft, strict)]
    proofs.append("an impossible deadline was refused with an offer that was then accepted")
    proofs.append(given_up(site, second["job_id"], node))
    rest = [job for job in site.jobs() if job["name"].startswith("best-effort")]
    if any(job["state"] != "completed" for job in rest):
        raise ProofFailed(f"best effort: {[(job['name'], job['state']) for job in rest]}")
    stops = sum(job["preemption_count"] for job in rest)
    proofs.append(f"all {len(rest)} best-effort jobs completed, stopped {stops} times in all")
    return proofs


def show(root: Path) -> None:
    began_s = time.monotonic()
    with ExitStack() as opened:
        screen = opened.enter_context(Screen())
        screen.act("A master and three agents start, each with eight virtual GPUs")
        cluster = opened.enter_context(
            Cluster(root, settings=quick(lease=SILENCE, stretch=STRETCH), nodes=NODES)
        )
        proofs = perform(Promises(cluster, screen), root)
        opened.close()
    processes.kill_all(root)
    screen.proved(proofs)
    print(f"all of it in {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    sys.exit(perform_alone("demo-slo", show))
