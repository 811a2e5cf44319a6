#!/usr/bin/env python3
"""make demo-cost: machines are rented where being late costs more, from a provider that fails, and
given back empty.

The provider is an operator's own program (`cost_provider.py`): here its machines are agents of this
machine. Exits 0 only if every claim held. KEEP=1 leaves the logs. POLICY names the method that
chooses machines, such as gpuaas-path-relinking.
"""

import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from alone import perform_alone
from cluster import MASTER, Cluster
from proof import ProofFailed
from quick import STAYS, quick
from screen import Screen
from site_of_jobs import ENDED, Job, Site

OWN = "own-a"
PRICE = 36.0
STEPS = Path(__file__).resolve().parent.parent / "jobs" / "steps.py"
PROVIDER = Path(__file__).resolve().parent / "cost_provider.py"

POOLS = """
[[pools]]
name = "spot"
provider = "exec"
program = "{program}"
timeout = "20s"
gpu_type = "h100-80gb"
gpus = 8
price_per_hour = {price}
boot = "10s"
most = 2

[renting]
allow_master_account = true
policy = "{policy}"
look_every = "2s"
most_per_hour = 100.0
"""
SILENCE = 'ttl = "4s"\nunreachable = "6s"'


class Costs(Site):
    """The cluster, its pool, and the jobs by name."""

    def __init__(self, cluster: Cluster, screen: Screen, root: Path) -> None:
        super().__init__(cluster, screen)
        self.root = root
        self.ids: dict[str, str] = {}

    def submit(self, name: str, gpus: int, *flags: str, steps: int) -> None:
        command = (sys.executable, str(STEPS), "--steps", str(steps), "--seconds", "0.1")
        _, job = self.submitted(name, "--gpus", str(gpus), *flags, "--", *command)
        self.ids[name] = job["job_id"]
        self.screen.say(f"dlq submit --gpus {gpus} {' '.join((*flags, '...'))} [{name}]")

    def of(self, name: str) -> Job:
        return self.job(self.ids[name])

    def machines(self) -> list[dict[str, Any]]:
        pool: dict[str, Any] = self.told("pool", "admin", "pool", "show", "spot")
        machines: list[dict[str, Any]] = pool["machines"]
        return machines

    def happened(self, *kinds: str) -> list[Job]:
        """Events of machines, of these kinds."""
        told = self.cluster.dlq("events", "--json")
        return [one for one in _events(told) if one["kind"] in kinds]

    def bill(self) -> list[str]:
        """The requests to the provider."""
        path = self.root / "bill"
        return path.read_text().splitlines() if path.exists() else []

    def tell(self, *kinds: str) -> None:
        for one in self.happened(*kinds):
            self.screen.say(f"  {one['kind']}: {one['cause']}")


def _events(text: str) -> list[Job]:
    events: list[Job] = json.loads(text)["events"]
    return events


def own_first(site: Costs) -> None:
    """The own node is enough for a job with time."""
    site.screen.act("One own node with 8 GPUs; a machine of pool spot costs 36 an hour")
    site.submit("first", 8, "--work", "1h", steps=3000)
    site.until(lambda: site.of("first")["state"] == "running", "the first job to run")
    site.submit("cheap", 8, "--work", "20s", "--due", "5s", "--weight", "0.01", steps=5)
    time.sleep(3.0)  # long enough for three decisions
    if site.machines():
        raise ProofFailed(f"a machine was rented for a job that is hardly late: {site.machines()}")
    site.screen.say("nothing is rented for it: being an hour late costs 0.01, a machine 36 an hour")


def rents(site: Costs) -> str:
    """A job that may not be late gets a machine, although the provider fails half way."""
    site.screen.act("A job that costs 500 an hour once it is late; the provider fails half way")
    (site.root / "machines").mkdir(exist_ok=True)
    (site.root / "machines" / "fail-half-way").touch()
    site.submit("dear", 8, "--work", "12s", "--due", "30s", "--weight", "500", steps=60)
    site.until(lambda: site.happened("machine_start_failed"), "the provider to fail")
    site.tell("machine_asked_for", "machine_start_failed")
    return str(site.machines()[0]["machine_id"])


def master_dies(site: Costs, name: str) -> None:
    """kill -9 while the machine is being started."""
    site.screen.act("kill -9 of the master while that machine starts; it comes back")
    site.cluster.kill(MASTER)
    site.cluster.start(MASTER)
    site.until(lambda: site.cluster.ask("dlq", "nodes").returncode == 0, "the master to answer")
    site.until(lambda: site.of("dear")["state"] in {"running", *ENDED}, "the dear job to run")
    if site.of("dear")["nodes"] not in ([name], []):
        raise ProofFailed(f"it runs on {site.of('dear')['nodes']}, not on {name}")
    site.screen.say(f"it runs on {name}, which was asked for before the master died")


def given_back(site: Costs) -> float:
    """No job needs it any more: it is emptied, proven empty and stopped."""
    site.screen.act("The job ends, and no other is worth a machine")
    site.until(lambda: site.of("dear")["state"] in ENDED, "the dear job to end")
    site.until(lambda: all(one["state"] == "away" for one in site.machines()), "it to be gone")
    site.tell("machine_up", "machine_draining", "machine_stopping", "machine_away")
    print(site.cluster.dlq("admin", "pool", "list"))
    return float(sum(one["cost"] for one in site.machines()))


def accounted(site: Costs, cost: float) -> str:
    """The cost, by user and pool, and its forecast."""
    site.screen.act("The cost, beside its forecast")
    print(site.cluster.dlq("report", "cost", "--by", "job,pool"))
    told = json.loads(site.cluster.dlq("report", "cost", "--by", "job,pool", "--json"))
    (paid,) = told["pools"]
    parts = paid["jobs"] + paid["boot"] + paid["idle"]
    jobs = {one["name"]: one for one in told["costs"]}
    dear = jobs["dear"]
    if abs(paid["paid"] - cost) > 0.001 or abs(parts - cost) > 0.001:
        raise ProofFailed(f"the machine has cost {cost:.3f}, and it is told to be {paid}")
    if dear["pool"] != "spot" or abs(dear["cost"] - paid["jobs"]) > 0.001 or not paid["boot"]:
        raise ProofFailed(f"one job was on that machine, and it is charged {dear}, of {paid}")
    if not 0.0 < dear["foretold_cost"] < paid["foretold"] or dear["own_late_cost"] < 100.0:
        raise ProofFailed(f"its forecast is {dear}, and the machine's {paid}")
    if jobs["cheap"]["pool"] != "own" or jobs["cheap"]["cost"]:
        raise ProofFailed(f"the job that is left to the own node is charged {jobs['cheap']}")
    late = f"{dear['late_cost']:.2f} for being late, {dear['own_late_cost']:.0f} on the own node"
    forecast = f"the forecast was {paid['foretold']:.3f}"
    return f"{cost:.3f} was paid for jobs, boot and idle; {forecast}; {late}"


def perform(site: Costs) -> list[str]:
    own_first(site)
    name = rents(site)
    master_dies(site, name)
    cost = given_back(site)
    account = accounted(site, cost)
    machines = site.machines()
    started = {line for line in site.bill() if line.startswith("start")}
    left = [path.name for path in (site.root / "machines").glob("spot-*")]
    if len(machines) != 1 or started != {f"start {name}"} or left:
        raise ProofFailed(f"paid twice, or left behind: {machines} {site.bill()} {left}")
    if site.of("dear")["state"] != "completed" or site.of("first")["state"] != "running":
        raise ProofFailed(f"{[(job['name'], job['state']) for job in site.jobs()]}")
    if not 0.0 < cost < PRICE / 60.0 * 3.0:
        raise ProofFailed(f"it has cost {cost:.3f}")
    tries = len([line for line in site.bill() if line.startswith("start")])
    return [
        "a job that is hardly late waits for the own node; the one to which a machine is worth it "
        "got one",
        f"asked {tries} times, with a provider that failed half way and a master killed with -9, "
        f"it is one machine: {name}",
        f"it was given back when no job needed it: {cost:.3f} in all, and nothing of it is left",
        account,
        "no job on the own node was disturbed",
    ]


def show(root: Path) -> None:
    began_s = time.monotonic()
    program = root / "provider"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{PROVIDER}' '{root}' \"$1\"\n")
    program.chmod(0o755)
    with ExitStack() as opened:
        screen = opened.enter_context(Screen())
        policy = os.environ.get("POLICY") or "dlq"
        screen.act(f"A master and one agent start, with eight virtual GPUs; {policy} rents")
        pools = POOLS.format(program=program, price=PRICE, policy=policy)
        settings = quick(pools, lease=SILENCE, settings=STAYS)
        cluster = opened.enter_context(Cluster(root, settings=settings, nodes=(OWN,)))
        proofs = perform(Costs(cluster, screen, root))
        opened.close()
    screen.proved(proofs)
    print(f"all of it in {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    sys.exit(perform_alone("demo-cost", show))
