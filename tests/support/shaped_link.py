"""Two hosts that are network namespaces, and the link between them, as fast or slow as a test
wants.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

WIRE = "wire0"
_BURST_KB = 128


class ShapedLink:
    """Namespaces `hosts` at `addresses`, joined by one wire."""

    def __init__(self, number: int) -> None:
        self.hosts = (f"dlq-a-{number}", f"dlq-b-{number}")
        net = number % 250
        self.addresses = (f"10.214.{net}.1", f"10.214.{net}.2")

    def shape(self, megabits_per_s: int | None) -> None:
        """What each end may send; None: as much as it can."""
        for host in self.hosts:
            inside(host, "tc", "qdisc", "del", "dev", WIRE, "root", check=False)
            if megabits_per_s is not None:
                inside(
                    host, "tc", "qdisc", "add", "dev", WIRE, "root", "tbf", "rate",
                    f"{megabits_per_s}mbit", "burst", f"{_BURST_KB}kb", "latency", "200ms",
                )  # fmt: skip

    def command(self, place: int, words: Sequence[str | Path]) -> list[str]:
        """What runs a command on one of the hosts."""
        return ["ip", "netns", "exec", self.hosts[place], *map(str, words)]


def why_no_links() -> str:
    """What this machine lacks; empty: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if missing:
        return f"{missing[0]} is not installed"
    try:
        with shaped_link() as link:
            link.shape(100)
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip()}"
    return ""


@contextmanager
def shaped_link() -> Iterator[ShapedLink]:
    """The two hosts, until they are not needed any more."""
    link = ShapedLink(os.getpid())
    try:
        for host in link.hosts:
            _run("ip", "netns", "add", host)
        ends = [part for host in link.hosts for part in ("name", WIRE, "netns", host)]
        _run("ip", "link", "add", *ends[:4], "type", "veth", "peer", *ends[4:])
        for host, address in zip(link.hosts, link.addresses, strict=True):
            inside(host, "ip", "address", "add", f"{address}/24", "dev", WIRE)
            inside(host, "ip", "link", "set", WIRE, "up")
            inside(host, "ip", "link", "set", "lo", "up")
        yield link
    finally:
        for host in link.hosts:
            _run("ip", "netns", "del", host, check=False)


def inside(host: str, *words: str, check: bool = True) -> None:
    """Run a program in a namespace."""
    _run("ip", "netns", "exec", host, *words, check=check)


def _run(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, capture_output=True, text=True)
