"""sinfo's fields: letters of `-o`, names of `-O`, headings and texts as Slurm prints them.

A row is nodes of one partition. Nodes with equal texts share a line; texts of the whole line are
those of `_WHOLE`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlq.v1 import queue_pb2
from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.columns import FieldTable, Letter
from dlq_cli.slurm.nodes.facts import SeenNode, short
from dlq_common.text.hostlist import compress_hostlist
from dlq_compat.job_page import NOT_SET, NULL


class SinfoRow(NamedTuple):
    """Nodes of one partition that print alike; none where a partition has none to show."""

    queue: queue_pb2.Queue
    nodes: Sequence[SeenNode]


RowText = Callable[[SinfoRow], str]


def _of_node(text: Callable[[SeenNode], str], empty: str) -> RowText:
    """A text of each node, `8+` where they differ and the least is 8."""

    def shown(row: SinfoRow) -> str:
        texts = list(dict.fromkeys(text(node) for node in row.nodes))
        if not texts:
            return empty
        if len(texts) > 1 and all(each.isdecimal() for each in texts):
            return f"{min(texts, key=int)}+"
        return texts[0]

    return shown


def _always(text: str) -> RowText:
    return lambda row: text


def _count(row: SinfoRow) -> tuple[int, int, int, int]:
    """Nodes with jobs, without, out of use, all."""
    busy = sum(1 for node in row.nodes if node.usable and node.state.rstrip("*") != "idle")
    idle = sum(1 for node in row.nodes if node.state.rstrip("*") == "idle")
    return busy, idle, len(row.nodes) - busy - idle, len(row.nodes)


def _cpus(row: SinfoRow) -> str:
    given = sum(node.cpus_given for node in row.nodes)
    idle = sum(node.cpus - node.cpus_given for node in row.nodes if node.usable)
    total = sum(node.cpus for node in row.nodes)
    return f"{given}/{idle}/{total - given - idle}/{total}"


def _two(row: SinfoRow) -> str:
    return "/".join(str(number) for number in _count(row)[:2])


def _four(row: SinfoRow) -> str:
    return "/".join(str(number) for number in _count(row))


def _names(row: SinfoRow) -> str:
    return compress_hostlist([node.name for node in row.nodes])


def _user(node: SeenNode) -> str:
    return node.reason_by or "Unknown"


def _user_long(node: SeenNode) -> str:
    return f"{node.reason_by}({words.uid(node.reason_by)})" if node.reason_by else "Unknown"


def _sct(node: SeenNode) -> str:
    return f"{node.cpus}:1:1"


_FIELDS: tuple[Letter[SinfoRow], ...] = (
    Letter("AVAIL", "a", ("available",), _always("up")),
    Letter("ACTIVE_FEATURES", "b", ("features_act",), _of_node(lambda n: n.features, "")),
    Letter("CPUS", "c", ("cpus",), _of_node(lambda n: str(n.cpus), "0")),
    Letter("TMP_DISK", "d", ("disk",), _of_node(lambda n: "0", "0")),
    Letter("FREE_MEM", "e", ("freemem",), _of_node(lambda n: NOT_SET, "0")),
    Letter("AVAIL_FEATURES", "f", ("features",), _of_node(lambda n: n.features, "")),
    Letter("GROUPS", "g", ("groups",), _always("all")),
    Letter("OVERSUBSCRIBE", "h", ("oversubscribe",), _always("NO")),
    Letter("TIMELIMIT", "l", ("time",), _always("infinite")),
    Letter("MEMORY", "m", ("memory",), _of_node(lambda n: str(n.memory_mib), "0")),
    Letter("HOSTNAMES", "n", ("nodehost",), _of_node(lambda n: n.node.hostname or n.name, "")),
    Letter("NODE_ADDR", "o", ("nodeaddr",), _of_node(lambda n: n.node.hostname or n.name, "")),
    Letter("PRIO_TIER", "p", ("prioritytier",), lambda r: str(max(1, r.queue.priority + 1))),
    Letter("ROOT", "r", ("root",), _always("no")),
    Letter("JOB_SIZE", "s", ("size",), _always("1-infinite")),
    Letter("STATE", "t", ("statecompact",), _of_node(lambda n: n.short_state, "n/a")),
    Letter("USER", "u", ("user",), _of_node(_user, "Unknown")),
    Letter("VERSION", "v", ("version",), _of_node(lambda n: n.node.agent_version or NULL, "")),
    Letter("WEIGHT", "w", ("weight",), _always("1")),
    Letter("S:C:T", "z", ("socketcorethread",), _of_node(_sct, "0:0:0")),
    Letter("NODES(A/I)", "A", ("nodeai",), _two),
    Letter("MAX_CPUS_PER_NODE", "B", ("maxcpuspernode",), _always("UNLIMITED")),
    Letter("CPUS(A/I/O/T)", "C", ("cpusstate",), _cpus),
    Letter("NODES", "D", ("nodes",), lambda r: str(len(r.nodes))),
    Letter("REASON", "E", ("reason",), _of_node(lambda n: n.reason or "none", "none")),
    Letter("NODES(A/I/O/T)", "F", ("nodeaiot",), _four),
    Letter("GRES", "G", ("gres",), _of_node(lambda n: n.gres, "")),
    Letter("TIMESTAMP", "H", ("timestamp",), _of_node(lambda n: words.instant_s(n.reason_s, "Unknown"), "Unknown")),  # noqa: E501
    Letter("PRIO_JOB_FACTOR", "I", ("priorityjobfactor",), _always("1")),
    Letter("DEFAULTTIME", "L", ("defaulttime",), _always("n/a")),
    Letter("PREEMPT_MODE", "M", ("preemptmode",), _always("REQUEUE")),
    Letter("NODELIST", "N", ("nodelist",), _names),
    Letter("CPU_LOAD", "O", ("cpusload",), _of_node(lambda n: NOT_SET, "0")),
    Letter("PARTITION", "P", ("partition",), lambda r: r.queue.name + ("*" if r.queue.is_default else "")),  # noqa: E501
    Letter("PARTITION", "R", ("partitionname",), lambda r: r.queue.name),
    Letter("ALLOCNODES", "S", ("allocnodes",), _always("all")),
    Letter("STATE", "T", ("statelong",), _of_node(lambda n: n.state, "n/a")),
    Letter("USER", "U", ("userlong",), _of_node(_user_long, "Unknown")),
    Letter("CLUSTER", "V", ("cluster",), _always(NOT_SET)),
    Letter("SOCKETS", "X", ("sockets",), _of_node(lambda n: str(n.cpus), "0")),
    Letter("CORES", "Y", ("cores",), _of_node(lambda n: "1", "0")),
    Letter("THREADS", "Z", ("threads",), _of_node(lambda n: "1", "0")),
    # By name alone.
    Letter("ALLOCMEM", "", ("allocmem",), _of_node(lambda n: str(n.memory_given_mib), "0")),
    Letter("COMMENT", "", ("comment",), _always(NULL)),
    Letter("EXTRA", "", ("extra",), _always(NULL)),
    Letter("GRES_USED", "", ("gresused",), _of_node(lambda n: n.gres_used, "")),
    Letter("PORT", "", ("port",), _of_node(lambda n: "0", "0")),
    Letter("STATECOMPLETE", "", ("statecomplete",), _of_node(lambda n: _complete(n.state), "n/a")),
)  # fmt: skip
_WHOLE = frozenset({"NODES", "NODELIST", "NODES(A/I)", "NODES(A/I/O/T)", "CPUS(A/I/O/T)"})
# Texts by which nodes of other states or sizes share a line without -e.
_LOOSE = frozenset(
    {"CPUS", "TMP_DISK", "MEMORY", "WEIGHT", "SOCKETS", "CORES", "THREADS", "FREE_MEM", "CPU_LOAD"}
)
NODE_FIELDS = FieldTable("sinfo", "Invalid node format specification: ", _FIELDS)


def _complete(state: str) -> str:
    """`mixed+drain`, as Slurm writes the base state and its flags."""
    bare = state.rstrip("*")
    full = {"drained": "idle+drain", "draining": "mixed+drain", "maint": "idle+maint"}
    return full.get(bare, bare) + state[len(bare) :]


def alike_key(field: Letter[SinfoRow], row: SinfoRow, *, exact: bool) -> str:
    """The text of a field that nodes of one line share."""
    if field.heading in _WHOLE or (not exact and field.heading in _LOOSE):
        return ""
    return field.text(row)


__all__ = ["NODE_FIELDS", "SinfoRow", "alike_key", "short"]
