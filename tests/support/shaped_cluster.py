"""Two agents in network namespaces, whose jobs talk to each other over a link as slow as a test
wants.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.harness import Daemons
from support.netns_daemons import NetnsDaemons, _ip

LINK = "link0"
_BURST_KB = 64


class ShapedCluster(NetnsDaemons):
    """Nodes `n1` and `n2` with two virtual GPUs each; what their agents say to the master goes
    another way.
    """

    def __init__(self, root: Path, megabits_per_s: int, *, settings: str) -> None:
        super().__init__(root, ("n1", "n2"), hold_s=120)
        self._settings = settings
        self._megabits_per_s = megabits_per_s
        number = os.getpid() % 250
        self._linked = {"n1": f"10.215.{number}.1", "n2": f"10.215.{number}.2"}

    @contextmanager
    def up(self) -> Iterator[Daemons]:
        with super().up() as daemons:
            yield daemons

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        config = self.root / f"{name}.toml"
        text = config.read_text().replace("fake:8x", "fake:2x")
        address = f'address = "{self._linked[name]}"'
        config.write_text(re.sub(r"(?m)^(name = .*)$", rf"\1\n{address}", text, count=1))

    def _make_wire(self, name: str) -> None:
        super()._make_wire(name)
        if name == "n2":
            self._join()

    def _join(self) -> None:
        first, second = (self._namespace(name) for name in ("n1", "n2"))
        _ip(
            "link",
            "add",
            LINK,
            "netns",
            first,
            "type",
            "veth",
            "peer",
            "name",
            LINK,
            "netns",
            second,
        )
        for name, address in self._linked.items():
            space = self._namespace(name)
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", LINK)
            _ip("-n", space, "link", "set", LINK, "up")
            self._inside(
                name, "tc", "qdisc", "add", "dev", LINK, "root", "tbf", "rate",
                f"{self._megabits_per_s}mbit", "burst", f"{_BURST_KB}kb", "latency", "200ms",
            )  # fmt: skip
