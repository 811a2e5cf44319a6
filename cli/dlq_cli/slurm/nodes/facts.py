"""A node as Slurm's programs see it: its state in their words, and what is given out on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dlq.v1 import node_pb2, resource_pb2
from dlq_cli.app import App
from dlq_cli.slurm.jobs.listing import everybody
from dlq_cli.words import NODE_STATES
from dlq_client.nodes import Nodes
from dlq_common.text.arrays import format_indexes
from dlq_common.text.wire import from_timestamp
from dlq_compat.job_page import NOT_SET, NULL, size

CORE_TYPE = "cpu"
_DOWN = frozenset({"unreachable", "down"})
_DRAINED = frozenset({"draining", "cordoned", "cleaning", "quarantined", "disk_full"})
_SHORT = {
    "allocated": "alloc", "mixed": "mix", "drained": "drain", "draining": "drng",
    "maint": "maint", "unknown": "unk",
}  # fmt: skip


class SeenNode:
    """One node, and the CPUs and memory that its jobs have declared."""

    __slots__ = ("cpus_given", "memory_given_mib", "node")

    def __init__(self, node: node_pb2.Node, cpus_given: int = 0, memory_given_mib: int = 0) -> None:
        self.node = node
        self.cpus_given = min(cpus_given, node.cpu_count) if node.cpu_count else cpus_given
        self.memory_given_mib = memory_given_mib

    @property
    def name(self) -> str:
        return self.node.node_id

    @property
    def state(self) -> str:
        """`idle`, `mixed`, `allocated`, `drained`, `draining`, `down`, `maint`; `*`: it does not
        answer.
        """
        word = NODE_STATES.get(self.node.state) or "unknown"
        if word in _DOWN:
            return "down*"
        silent = "*" if word == "suspect" else ""
        return self._work() + silent

    def _work(self) -> str:
        if _DRAINED & set(self.node.flags):
            return "draining" if self.node.attempts else "drained"
        if "maintenance" in self.node.flags:
            return "maint"
        if not self.node.attempts:
            return "idle"
        return "mixed" if self.node.free_gpu_count or self._has_free_cpus() else "allocated"

    def _has_free_cpus(self) -> bool:
        """A node of GPUs alone is full when its GPUs are."""
        return not self.gpus and self.cpus_given < self.node.cpu_count

    @property
    def short_state(self) -> str:
        return short(self.state)

    @property
    def upper_state(self) -> str:
        """As scontrol has it: `MIXED+DRAIN`, `DOWN*`."""
        word = self.state
        bare, silent = word.rstrip("*"), "*" if word.endswith("*") else ""
        base = {"drained": "IDLE", "draining": "MIXED", "maint": "IDLE"}.get(bare, bare.upper())
        more = {"drained": "+DRAIN", "draining": "+DRAIN", "maint": "+MAINTENANCE"}.get(bare, "")
        return base + silent + more

    @property
    def flags(self) -> list[str]:
        """The state's flags of Slurm's JSON."""
        bare = self.state.rstrip("*")
        found = ["DRAIN"] if bare in ("drained", "draining") else []
        found += ["MAINTENANCE"] if bare == "maint" else []
        return found + (["NOT_RESPONDING"] if self.state.endswith("*") else [])

    @property
    def usable(self) -> bool:
        return self.state.rstrip("*") in ("idle", "mixed", "allocated")

    @property
    def cpus(self) -> int:
        return self.node.cpu_count

    @property
    def memory_mib(self) -> int:
        return self.node.memory_bytes >> 20

    @property
    def gpus(self) -> Sequence[resource_pb2.Gpu]:
        """Its devices without the cores that jobs without GPUs get."""
        return [gpu for gpu in self.node.gpus if gpu.gpu_type != CORE_TYPE]

    @property
    def gpus_given(self) -> int:
        statuses = self.node.gpu_statuses
        if statuses:
            return sum(1 for status in statuses if status.attempt)
        return max(
            0, len(self.gpus) - self.node.free_gpu_count - len(self.node.withheld_gpu_indexes)
        )

    @property
    def gres(self) -> str:
        counts = Counter(gpu.gpu_type for gpu in self.gpus)
        return ",".join(_gres(kind, count) for kind, count in sorted(counts.items())) or NULL

    @property
    def gres_used(self) -> str:
        """Of each kind, how many are given out and which."""
        given = {status.index for status in self.node.gpu_statuses if status.attempt}
        by_kind: dict[str, list[int]] = {gpu.gpu_type: [] for gpu in self.gpus}
        for gpu in self.gpus:
            by_kind[gpu.gpu_type] += [gpu.index] if gpu.index in given else []
        texts = [
            f"{_gres(kind, len(indexes))}(IDX:{format_indexes(sorted(indexes)) or NOT_SET})"
            for kind, indexes in sorted(by_kind.items())
        ]
        return ",".join(texts) or "gpu:0"

    @property
    def features(self) -> str:
        return ",".join(f"{key}={text}" for key, text in sorted(self.node.labels.items())) or NULL

    @property
    def reason(self) -> str:
        """Why it takes no work; empty: it does."""
        if self.usable:
            return ""
        told = [one.words or one.kind for one in self.node.reasons]
        return told[0] if told else self.node.flag_reason

    @property
    def reason_s(self) -> float:
        since = [from_timestamp(one.since_time) for one in self.node.reasons]
        return since[0] if since and self.reason else 0.0

    @property
    def reason_by(self) -> str:
        actors = [one.actor for one in self.node.reasons]
        return actors[0].removeprefix("user:") if actors and self.reason else ""

    @property
    def tres(self) -> str:
        parts = [f"cpu={self.cpus}", f"mem={size(self.memory_mib)}", f"billing={self.cpus}"]
        parts += [f"gres/gpu={len(self.gpus)}"] if self.gpus else []
        return ",".join(parts)

    @property
    def tres_used(self) -> str:
        parts = [f"cpu={self.cpus_given}"] if self.cpus_given else []
        parts += [f"mem={size(self.memory_given_mib)}"] if self.memory_given_mib else []
        parts += [f"gres/gpu={self.gpus_given}"] if self.gpus_given else []
        return ",".join(parts)


def short(state: str) -> str:
    """`mix`, `alloc*`."""
    word = state.rstrip("*")
    return _SHORT.get(word, word) + state[len(word) :]


def _gres(kind: str, count: int) -> str:
    return f"gpu:{kind}:{count}" if kind else f"gpu:{count}"


def seen_nodes(nodes: list[node_pb2.Node], given: Mapping[str, tuple[int, int]]) -> list[SeenNode]:
    """With the CPUs and MiB that jobs have on each."""
    return [SeenNode(node, *given.get(node.node_id, (0, 0))) for node in nodes]


def all_nodes(app: App, *, with_given: bool = True) -> list[SeenNode]:
    """In the order of their names. `with_given`: also the CPUs and the memory that are given out,
    as far as the caller may see the jobs.
    """
    nodes = sorted(Nodes(app.connection()).list(), key=lambda node: _by_number(node.node_id))
    return seen_nodes(nodes, _given(app) if with_given else {})


def _given(app: App) -> dict[str, tuple[int, int]]:
    cpus: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for job in everybody(app, detailed=True, ended_within_s=1):
        for name in job.job.node_ids:
            cpus[name] += job.cpus // max(1, job.node_count)
            memory[name] += job.memory_mib
    return {name: (cpus[name], memory[name]) for name in cpus}


def _by_number(name: str) -> tuple[str, int, str]:
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0), name
