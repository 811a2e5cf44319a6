#!/usr/bin/env python3
"""make demo-ha: one of two masters leads; it is killed, stopped and told to leave, and then its
database is killed.

Each time the seconds until a client has its next answer are said. Exits 0 only if no job noticed
any of it. KEEP=1 leaves the logs.
"""

import signal
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import processes
import proof
from alone import perform_alone
from cluster import MASTER, Cluster, free_ports, wait_until
from dlq_client.line.connection import connect
from dlq_client.queues import Queues
from proof import ProofFailed
from quick import quick
from screen import Screen
from servers import Missing, Servers, need_servers
from site_of_jobs import ENDED, Site

SECOND = "second"
NODES = ("node-a", "node-b")
STEPS = Path(__file__).resolve().parent.parent / "jobs" / "steps.py"
RUNNING, WAITING = ("train-a", "train-b"), ("next-a", "next-b", "next-c")
ANSWER_S = 120.0
LEADS_NO_MORE = 75  # the exit code of a master that has lost its lease


class Pair(Cluster):
    """Two masters on one database. Clients and agents know both."""

    def __init__(self, root: Path, servers: Servers) -> None:
        super().__init__(root, settings=quick(), nodes=NODES)
        self._servers = servers
        self.masters = (MASTER, SECOND)
        self._second = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self._ends: dict[str, int] = {}  # of each log, when its master was started last

    def start(self, name: str) -> None:
        log = self.root / f"{name}.log"
        self._ends[name] = log.stat().st_size if log.exists() else 0
        super().start(name)

    def says(self, name: str, word: str) -> bool:
        """Whether a daemon has said a word in this life."""
        return word.encode() in (self.root / f"{name}.log").read_bytes()[self._ends[name] :]

    def start_standby(self, name: str) -> None:
        self.start(name)
        wait_until(lambda: self.says(name, "stands_by"), f"{name} to stand by")

    def signal(self, name: str, number: int) -> None:
        self._daemons[name].send_signal(number)

    def exit_code(self, name: str) -> int:
        """Of a master that ends by itself."""
        return self._daemons.pop(name).wait(ANSWER_S)

    def _make_master(self) -> None:
        super()._make_master()
        masters = f'"{self.api}", "{self._second[0]}"'
        with Path(self.config(MASTER)).open("a") as file:
            file.write(f'[store]\nbackend = "postgresql"\ndsn = "{self._servers.dsn}"\n')
            file.write(f"[leader]\nmasters = [{masters}]\n")
        self.run("dlq-master", "copy-store", "--to", "postgresql", "--config", self.config(MASTER))
        state_dir = self.root / SECOND
        state_dir.mkdir(mode=0o700)
        for name in ("ca.key", "ca.crt"):
            (state_dir / name).touch(mode=0o600)
            (state_dir / name).write_bytes((self.root / MASTER / name).read_bytes())
        text = Path(self.config(MASTER)).read_text()
        for own, other in (
            (f'"{self.root / MASTER}"', f'"{state_dir}"'),
            (f'api = "{self.api}"', f'api = "{self._second[0]}"'),
            (f'join = "{self._join_address}"', f'join = "{self._second[1]}"'),
        ):
            text = text.replace(own, other, 1)
        Path(self.config(SECOND)).write_text(text)
        listens = tomllib.loads(text)["listen"]
        if [listens["api"], listens["join"]] != self._second:
            raise ProofFailed(f"the second master's file was not made: {listens}")


class HaSite(Site):
    """The jobs of the demo, and its two masters."""

    def __init__(self, cluster: Pair, servers: Servers, screen: Screen) -> None:
        super().__init__(cluster, screen)
        self.pair, self.servers = cluster, servers
        self.leader, self.other = cluster.masters
        self.epoch = 0
        self.ids: list[str] = []
        self.took: list[str] = []

    def submit(self, name: str) -> None:
        words = [sys.executable, str(STEPS), "--steps", "10", "--seconds", "0.1"]
        _, job = self.submitted(
            name, "--gpus", "8", "--", *words, "--until", str(self.cluster.root / "release")
        )
        self.ids.append(job["job_id"])

    def answered_s(self, began_s: float) -> float:
        """Ask as a client does that knows both masters; the seconds until the next leader
        answers.
        """
        with connect(home=self.cluster.home, patience_s=ANSWER_S) as line:
            queues = Queues(line)
            while (epoch := queues.cluster().epoch) <= self.epoch:
                time.sleep(0.05)
        self.epoch = epoch
        return self.screen.elapsed_s - began_s

    def taken_over(self, event: str, began_s: float) -> None:
        """The other master answers. It takes a job too."""
        took_s = self.answered_s(began_s)
        self.leader, self.other = self.other, self.leader
        self.screen.say(f"{self.leader} answers a client, {took_s:.1f} s after that")
        self.took.append(f"{event}: {took_s:.1f} s until a client had an answer")
        self.submit(f"more-{len(self.took)}")
        self.screen.say(f"{self.leader} takes job {self.ids[-1]}")

    def undisturbed(self, before: dict[tuple[str, str, str], int]) -> None:
        """Every process of a job is as it was, and its agent tells of it."""
        self.until(self.cluster.all_up, "the agents to be back")
        proof.nothing_restarted(before, processes.of_jobs(self.cluster.root), set())


def fill(site: HaSite) -> dict[tuple[str, str, str], int]:
    """Two jobs run, three wait; the processes of those that run."""
    site.screen.act("Two jobs fill all 16 GPUs, three wait")
    for name in (*RUNNING, *WAITING):
        site.submit(name)

    def states() -> list[str]:
        return sorted(job["state"] for job in site.jobs())

    site.until(lambda: states() == [*["queued"] * 3, *["running"] * 2], "two jobs to run")
    site.until(lambda: len(processes.of_jobs(site.cluster.root)) == 2, "their processes")
    return processes.of_jobs(site.cluster.root)


def kill(site: HaSite) -> None:
    """The process of the leader dies."""
    site.screen.act(f"kill -9 of {site.leader}, which leads")
    began_s = site.screen.elapsed_s
    site.pair.kill(site.leader)
    site.taken_over("the leading master was killed", began_s)
    site.pair.start_standby(site.other)


def stop(site: HaSite) -> None:
    """The leader stands still, and wakes up when another one leads."""
    site.screen.act(f"{site.leader} is stopped (SIGSTOP): it holds its lines, and does nothing")
    began_s = site.screen.elapsed_s
    site.pair.signal(site.leader, signal.SIGSTOP)
    site.taken_over("the leading master was stopped", began_s)
    site.pair.signal(site.other, signal.SIGCONT)
    code = site.pair.exit_code(site.other)
    if code != LEADS_NO_MORE:
        raise ProofFailed(f"{site.other} woke up and ended with code {code}")
    site.screen.say(f"{site.other} wakes up, finds that it leads no more, and ends itself")
    site.pair.start_standby(site.other)


def hand_over(site: HaSite) -> None:
    """The leader gives its lease back."""
    site.screen.act(f"{site.leader} is told to leave, as before an upgrade of its host")
    began_s = site.screen.elapsed_s
    site.pair.signal(site.leader, signal.SIGTERM)  # as `systemctl stop` does
    site.taken_over("the leading master was told to leave", began_s)
    if code := site.pair.exit_code(site.other):
        raise ProofFailed(f"{site.other} left with code {code}")
    site.pair.start_standby(site.other)


def lose_the_database(site: HaSite) -> None:
    """The primary dies, and the standby is promoted by hand, as a tool of a site does it."""
    servers = site.servers
    site.screen.act(f"kill -9 of the database's primary, server {servers.primary}")
    began_s = site.screen.elapsed_s
    servers.kill_primary()
    if site.pair.exit_code(site.leader) == 0:
        raise ProofFailed(f"{site.leader} lost its database, and left as if nothing had happened")
    site.screen.say(f"{site.leader} cannot know what was committed last: it ends itself")
    servers.promote()
    site.screen.say(f"server {servers.primary} is promoted; a new standby is made for it")
    servers.make_standby()
    ready_s = site.screen.elapsed_s
    site.screen.say(f"server {servers.standby} confirms commits, {ready_s - began_s:.1f} s after")
    event = "the database's primary was killed, and its standby promoted"
    site.taken_over(f"{event} and given a new standby within {ready_s - began_s:.1f} s", began_s)
    site.pair.start_standby(site.other)


def perform(site: HaSite) -> list[str]:
    """All acts; their results, as sentences."""
    site.answered_s(0.0)
    before = fill(site)
    acts: tuple[Callable[[HaSite], None], ...] = (kill, stop, hand_over, lose_the_database)
    for act in acts:
        act(site)
        site.undisturbed(before)
    site.screen.act("The two jobs may end now, and those that waited run")
    (site.cluster.root / "release").touch()
    site.until(lambda: all(job["state"] in ENDED for job in site.jobs()), "all jobs to end")
    for job in site.jobs():
        if (job["state"], job["attempt_count"]) != ("completed", 1):
            raise ProofFailed(f"{job['name']} is {job['state']}, attempt {job['attempt_count']}")
    if {job["job_id"] for job in site.jobs()} != set(site.ids):
        raise ProofFailed(f"accepted were {site.ids}, there are {site.jobs()}")
    return [
        *site.took,
        f"no job noticed: {len(RUNNING)} ran on in the same processes through all of it",
        f"all {len(site.ids)} accepted jobs completed, each in its first attempt",
    ]


def show(root: Path) -> None:
    with ExitStack() as opened:
        screen = opened.enter_context(Screen())
        servers = Servers(root)
        screen.act("PostgreSQL starts: a primary, and a standby that confirms each commit")
        opened.enter_context(servers)
        screen.act("Two masters and two agents start, each agent with eight virtual GPUs")
        pair = opened.enter_context(Pair(root, servers))
        pair.start_standby(SECOND)
        screen.say(f"{MASTER} leads, {SECOND} stands by")
        proofs = perform(HaSite(pair, servers, screen))
        opened.close()
    processes.kill_all(root)
    proofs.append(proof.nothing_left(root, set()))
    screen.proved(proofs)
    print(f"all of it in {screen.elapsed_s:.0f} s")


def main() -> int:
    try:
        need_servers()
    except Missing as missing:
        print(f"make demo-ha: {missing}", file=sys.stderr)
        return 1
    return perform_alone("demo-ha", show)


if __name__ == "__main__":
    sys.exit(main())
