"""Daemons whose agents live in network namespaces of their own: their lines to the master can be
cut.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path

from support.harness import BRIEF_SILENCE_S, Daemons

_PROGRAMS = ("ip", "nft", "nsenter", "sysctl")


class Cut(StrEnum):
    """What of a node's traffic is dropped without a word, seen from the node."""

    BOTH_WAYS = "both_ways"
    DEAF = "deaf"  # nothing reaches it
    MUTE = "mute"  # nothing leaves it


_HOOKS = {
    Cut.BOTH_WAYS: ("prerouting", "postrouting"),
    Cut.DEAF: ("prerouting",),
    Cut.MUTE: ("postrouting",),
}


_LOOPBACK = """\
table ip loopback {{
 chain there {{
  type nat hook output priority -100; policy accept;
  ip daddr 127.0.0.1 tcp dport {port} dnat to {master}
 }}
 chain as_itself {{
  type nat hook postrouting priority 100; policy accept;
  oifname "wire0" masquerade
 }}
}}
"""


def why_no_netns() -> str:
    """What this machine lacks; empty: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    name = f"dlq-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace: {made.stderr.strip()}"
    rules = _rules(Cut.BOTH_WAYS)
    probe = subprocess.run(
        ["ip", "netns", "exec", name, "nft", "-f", "-"],
        input=rules, capture_output=True, text=True, check=False,
    )  # fmt: skip
    subprocess.run(["ip", "netns", "del", name], check=True)
    return "" if probe.returncode == 0 else f"nft: {probe.stderr.strip()}"


class NetnsDaemons(Daemons):
    """The master and the clients are in this namespace, every agent is alone in one of its own,
    with one wire to the master. Rules are set in the namespaces of the agents only, so that nothing
    of the machine's own network changes but for the ends of these wires, which vanish with them."""

    def __init__(self, root: Path, agents: tuple[str, ...] = ("n1", "n2"), *, hold_s: int) -> None:
        super().__init__(root, agents, hold_s=hold_s, silence_s=BRIEF_SILENCE_S)
        number = os.getpid() % 250
        self._here = f"10.213.{number}.1"
        self._there = {name: f"10.213.{number}.{10 + i}" for i, name in enumerate(agents)}
        self.api, self.join = (
            f"{self._here}:{address.rpartition(':')[2]}" for address in (self.api, self.join)
        )
        # Agents that run jobs as root dial loopback only; in their namespaces that leads here.
        self.dialled = f"127.0.0.1:{self.api.rpartition(':')[2]}"

    @contextmanager
    def up(self) -> Iterator[Daemons]:
        with ExitStack() as wires:
            for name in self.agents:
                wires.callback(self._remove_wire, name)
                self._make_wire(name)
            yield wires.enter_context(super().up())

    def cut(self, name: str, how: Cut) -> None:
        """Drop its packets from now on; whoever sends them is not told."""
        self._inside(name, "nft", "-f", "-", rules=_rules(how))

    def heal(self, name: str) -> None:
        """All its packets arrive again."""
        self._inside(name, "nft", "delete", "table", "inet", "cut")

    def _command(self, name: str) -> list[str]:
        words = super()._command(name)
        if name not in self.agents:
            return words
        # Not `ip netns exec`: it hides the control groups below a new /sys.
        return ["nsenter", f"--net=/run/netns/{self._namespace(name)}", *words]

    def _namespace(self, name: str) -> str:
        return f"dlq-{os.getpid()}-{name}"

    def _wire(self, name: str) -> str:
        return f"dq{os.getpid() % 100_000}-{name}"  # a name of an interface has 15 letters at most

    def _make_wire(self, name: str) -> None:
        space, wire, there = self._namespace(name), self._wire(name), self._there[name]
        _ip("netns", "add", space)
        _ip("link", "add", wire, "type", "veth", "peer", "name", "wire0", "netns", space)
        _ip("addr", "add", f"{self._here}/32", "peer", f"{there}/32", "dev", wire)
        _ip("link", "set", wire, "up")
        _ip("-n", space, "addr", "add", f"{there}/32", "peer", f"{self._here}/32", "dev", "wire0")
        for device in ("lo", "wire0"):
            _ip("-n", space, "link", "set", device, "up")
        self._inside(name, "sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1")
        port = self.api.rpartition(":")[2]
        self._inside(name, "nft", "-f", "-", rules=_LOOPBACK.format(master=self._here, port=port))

    def _remove_wire(self, name: str) -> None:
        # A namespace ends some time after its name; the wire goes at once.
        subprocess.run(["ip", "link", "del", self._wire(name)], check=False)
        _ip("netns", "del", self._namespace(name))

    def _inside(self, name: str, *words: str, rules: str = "") -> None:
        subprocess.run(
            ["ip", "netns", "exec", self._namespace(name), *words],
            input=rules, text=True, check=True,
        )  # fmt: skip


def _rules(how: Cut) -> str:
    chains = "".join(
        f"chain {hook}_cut {{\n type filter hook {hook} priority 200; policy accept;\n"
        f' {"iifname" if hook == "prerouting" else "oifname"} "wire0" drop\n}}\n'
        for hook in _HOOKS[how]
    )
    return f"table inet cut {{\n{chains}}}\n"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
