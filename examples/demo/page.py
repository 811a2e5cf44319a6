#!/usr/bin/env python3
"""make demo-web: a cluster to look at in a browser. Jobs run, wait and fail, one has a promise,
and an idle inference server is lent to another.

It says the address, and goes on until Ctrl-C. Nothing of it is left then.
"""

import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import processes
from alone import perform_alone
from cluster import BIN, Cluster
from screen import Screen
from site_of_jobs import Site

OWN = ("own-a", "own-b")
SERVERS = ("inf-1", "inf-2", "inf-3")
STEPS = Path(__file__).resolve().parent.parent / "jobs" / "steps.py"
BUSY = 0.40  # of the inference side: one of its servers is idle beyond the head-room
SETTINGS = """
[lease]
heartbeat = "1s"

[nodes]
reconnect_jitter = "1s"
start_grace = "10s"

[twin]
refresh_every = "2s"

[scheduler]
policy = "dlq"

[loans]
load = "%s"
every = "1s"
headroom = 0.05
settle = "2s"
within = "60s"
"""
NOT_OWN, NOT_LENT = ("--exclude", ",".join(OWN)), ("--exclude", ",".join(SERVERS))
# Name, words of `dlq submit`, and the seconds of a step and steps of its training.
JOBS: tuple[tuple[str, tuple[str, ...], tuple[float, int]], ...] = (
    ("resnet", ("-G", "8", "--estimate", "5h"), (0.2, 90_000)),
    ("bert-large", ("-G", "4", "--estimate", "3h"), (0.5, 21_600)),
    ("nightly-eval", ("-G", "4", "--work", "90m", "--deadline", "8h"), (0.1, 54_000)),
    ("on-a-lent-server", ("-G", "8", "--estimate", "4h", *NOT_OWN), (0.3, 48_000)),
    ("gpt-wide", ("-G", "16", "--estimate", "3h", *NOT_LENT), (0.2, 54_000)),
    ("sweep", ("-G", "2", "--array", "0-3", "--estimate", "2h", *NOT_LENT), (0.2, 36_000)),
    ("after-lunch", ("-G", "1", "--hold"), (0.2, 600)),
)
FAILS = ("sh", "-c", "echo 'no module named trian' >&2; exit 1")


def furnish(site: Site) -> None:
    """Submit all of them, and see the first one run."""
    site.screen.act(f"{len(OWN)} nodes, {len(SERVERS)} inference servers, {len(JOBS) + 1} jobs")
    site.submitted("typo", "-G", "1", "--", *FAILS)
    for name, words, (seconds, steps) in JOBS:
        command = (sys.executable, str(STEPS), "--seconds", str(seconds), "--steps", str(steps))
        site.submitted(name, *words, "--", *command)
    site.until(
        lambda: any(job["state"] == "running" for job in site.jobs()), "the first job to run"
    )


def look(cluster: Cluster) -> None:
    """`dlq web`, which says its address itself, until it or this program is told to end."""
    environment = os.environ | cluster.client_environment
    variables = " ".join(f"{name}={value}" for name, value in cluster.client_environment.items())
    print(
        f"The same from another terminal:\n  export {variables}\n  {BIN}/dlq status -a", flush=True
    )
    with (
        suppress(KeyboardInterrupt),
        subprocess.Popen([BIN / "dlq", "web"], env=environment) as web,
    ):
        try:
            web.wait()
        finally:
            web.terminate()


def show(root: Path) -> None:
    load = root / "load"
    load.write_text(f"{BUSY}\n")
    with ExitStack() as until_end:
        screen = until_end.enter_context(Screen())
        cluster = until_end.enter_context(
            Cluster(
                root, nodes=(*OWN, *SERVERS), lenders=frozenset(SERVERS), settings=SETTINGS % load
            )
        )
        site = Site(cluster, screen)
        furnish(site)
        screen.act("The page; Ctrl-C ends all of it")
        look(cluster)
        with suppress(subprocess.CalledProcessError):
            cluster.dlq("cancel", "-u", "*", "--kill", "--wait", "-y")
    processes.kill_all(root)


if __name__ == "__main__":
    sys.exit(perform_alone("web", show))
