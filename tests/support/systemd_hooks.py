"""The operator's hooks on a booted host: the file, the socket of their unit, and submissions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.nspawn import Done
from support.systemd_site import MASTER, Site

FILE = "/etc/dlq/site-hooks.py"
SETTINGS = f'''
[hooks]
file = "{FILE}"
on_submit = "closed"
time_limit = "2s"
'''
# "prowl" tries what the account and the unit must not let it.
HOOKS = """
import os, socket, time

def reads(path):
    with open(path, "rb") as file:
        return file.read(1)

def writes(path):
    with open(path, "wb") as file:
        file.write(b"x")

TRIED = {
    "read the key": lambda: os.listdir("/var/lib/dlq"),
    "read the configuration": lambda: reads("/etc/dlq/master.toml"),
    "write": lambda: writes("/tmp/by-a-hook"),
    "call": lambda: socket.create_connection(("head", 7320), timeout=0.5),
    "fork": os.fork,
    "see others": lambda: reads("/proc/1/environ"),
}

def on_submit(job, user, context):
    if job.name == "hang":
        time.sleep(60)
    if job.name == "prowl":
        got = []
        for name, way in TRIED.items():
            try:
                way()
            except OSError:
                continue
            got.append(name)
        return ", ".join(got) or "all walls stand"
    job.time_limit_s = 3600.0
    return job
"""


class HookedMaster:
    """A master with hooks, and ada who submits."""

    def __init__(self, site: Site) -> None:
        self._head = site.head

    def submit(self, name: str) -> Done:
        """A job on hold with this name."""
        words = f"dlq submit --hold --name {name} -G 1 -- true"
        return self._head.run(words, user="ada", check=False)

    def processes(self) -> list[int]:
        """Of the account of hooks."""
        found = self._head.run("pgrep -u dlq-hooks", check=False).out
        return [int(pid) for pid in found.split()]


@contextmanager
def hooked_master(site: Site) -> Iterator[HookedMaster]:
    """Hooks as the page says; afterwards the master is as it was."""
    config = "/etc/dlq/master.toml"
    site.head.run(f"cp -p {config} /root/master.toml")
    site.head.run(f"cat > {FILE} <<'END'\n{HOOKS}END\ncat >> {config} <<'END'\n{SETTINGS}END")
    site.head.run(f"systemctl enable --now dlq-hooks.socket && systemctl restart {MASTER}")
    try:
        yield HookedMaster(site)
    finally:
        site.head.run("dlq cancel -y -u me", user="ada", check=False)
        site.head.run("systemctl disable --now dlq-hooks.socket")
        site.head.run(f"mv /root/master.toml {config} && rm {FILE}")
        site.head.run(f"systemctl restart {MASTER}")
