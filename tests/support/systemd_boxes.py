"""Boxes of `dlq up` on booted hosts: a user without root, sessions of theirs, and their systemd."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from support.nspawn import Done, Host
from support.waiting import wait_until

USER = "ada"
UNIT, JOBS_UNIT = "dlq-up.service", "dlq-up-jobs.service"
# Of a box and its jobs, for pgrep.
PARTS = "dlq_cli.up.keeper|dlq-master|dlq-nodeagent|dlq-shim|count.py"
LOGS = ".local/state/dlq/up/logs"
# Counts until it is told to leave, and then ends with 0, as a job that has saved would. It goes to
# the unit for jobs, where an agent puts it that may make control groups: on a host with v2 alone.
COUNT = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
for line in open("/proc/self/cgroup"):
    _, kinds, path = line.rstrip().split(":", 2)
    mount = {"": "/sys/fs/cgroup/unified", "name=systemd": "/sys/fs/cgroup/systemd"}.get(kinds)
    if mount and path.endswith("/dlq-up.service"):
        beside = path.replace("dlq-up.service", "dlq-up-jobs.service")
        with open(f"{mount}{beside}/cgroup.procs", "w") as group:
            group.write(str(os.getpid()))
with open(f"/home/ada/steps.{os.environ['DLQ_JOB_ID']}.{os.environ['DLQ_ATTEMPT']}", "a") as file:
    while True:
        print(os.getpid(), file=file, flush=True)
        time.sleep(0.2)
"""
RUNTIME = "export XDG_RUNTIME_DIR=/run/user/$(id -u)"
ENVIRONMENT = "export PATH=~/venv/bin:$PATH"


class BoxHost:
    """A host with a user, who has our package in an environment of their own."""

    def __init__(self, host: Host, wheel: Path, wheels: Path) -> None:
        self.host = host
        root = host.root()
        # A session's end is acted on at once, and not after ten seconds.
        (root / "etc/systemd/logind.conf.d").mkdir(parents=True, exist_ok=True)
        (root / "etc/systemd/logind.conf.d/site.conf").write_text("[Login]\nUserStopDelaySec=0\n")
        host.run("systemctl restart systemd-logind")
        host.run(f"useradd -m -u 1001 -s /bin/bash {USER}")
        shutil.copytree(wheels, root / "opt/wheels")
        shutil.copy(wheel, root / "opt/wheels")
        (root / "etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /opt/wheels\n")
        (root / f"home/{USER}/count.py").write_text(COUNT)
        self.login("python3 -m venv ~/venv && pip install --quiet 'dlq[all]'")

    def login(self, script: str, *, check: bool = True, typed: str = "") -> Done:
        """Log in, run this, and log out."""
        words = f"{ENVIRONMENT}\n{script}"
        return self.host.run(words, user=USER, login=True, check=check, typed=typed)

    def said(self, script: str) -> str:
        """What a command prints; it needs no session."""
        done = self.host.run(f"{ENVIRONMENT}\n{script}", user=USER, check=False)
        assert done.status == 0, f"{script}: {done.out}{done.err}{self.logs()}"
        return done.out.strip()

    def facts(self) -> dict[str, Any]:
        """What `dlq up --status --json` says, without a session."""
        words = f"{ENVIRONMENT}\ndlq up --status --json"
        done = self.host.run(words, user=USER, check=False)
        return dict(json.loads(done.out)["box"])

    def wait_up(self) -> dict[str, Any]:
        """Wait until the box is up."""

        def look() -> dict[str, Any]:
            facts = self.facts()
            return facts if facts["state"] == "up" else {}

        try:
            return wait_until(look, what="the box is up", timeout_s=120)
        except AssertionError as error:
            raise AssertionError(f"{error}{self.logs()}") from None

    def property_of(self, unit: str, name: str) -> str:
        """Of a unit of the user's systemd."""
        return self.said(f"{RUNTIME}; systemctl --user show -p {name} --value {unit}")

    def systemctl(self, words: str) -> None:
        """A command to the user's systemd, which runs already."""
        self.said(f"{RUNTIME}; systemctl --user {words}")

    def wait_logged_out(self) -> None:
        """Wait until no session is left."""
        wait_until(
            lambda: self.host.read("loginctl list-sessions --no-legend") == "",
            what="all sessions have ended",
        )

    def counting(self, *words: str) -> str:
        """A job that counts; its number."""
        asked = " ".join(("dlq submit --parsable -G 1", *words, "-- python3 ~/count.py"))
        job_id = self.said(asked)
        self.goes_on(job_id, 1)
        return job_id

    def steps(self, job_id: str, attempt: int) -> list[str]:
        path = self.host.root() / f"home/{USER}/steps.{job_id}.{attempt}"
        return path.read_text().split() if path.exists() else []

    def goes_on(self, job_id: str, attempt: int) -> None:
        """This attempt counts on, and it is the same process since it began."""
        before = len(self.steps(job_id, attempt))
        try:
            wait_until(
                lambda: len(self.steps(job_id, attempt)) > before + 3,
                what=f"attempt {attempt} of job {job_id} counts on",
                timeout_s=120,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}{self.logs()}") from None
        assert len(set(self.steps(job_id, attempt))) == 1

    def shown(self, job_id: str) -> dict[str, Any]:
        """A job, as `dlq show` has it."""
        return dict(json.loads(self.said(f"dlq show --json {job_id}"))["jobs"][0])

    def logs(self) -> str:
        """For failures."""
        look = f"tail -n 15 {LOGS}/*.log; {RUNTIME}; journalctl --user -n 20 -o cat || true"
        return "\n" + self.host.run(look, user=USER, check=False).out
