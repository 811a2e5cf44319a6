"""`sinfo`: the queues as partitions, each over all nodes, and the states of the nodes in Slurm's
words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import click

from dlq.v1 import node_pb2
from dlq_cli.app import App
from dlq_cli.output.render import clean_line
from dlq_cli.slurm.words import Grammar, SlurmWords, only_here, read
from dlq_cli.words import NODE_STATES
from dlq_client.nodes import Nodes
from dlq_client.queues import Queues
from dlq_common.errors import InvalidRequest
from dlq_common.text.hostlist import compress_hostlist, expand_hostlist
from dlq_compat.job_page import NULL

DEFAULT = "%9P %5a %.10l %.6D %6t %N"
_BY_NODE = "%N %.6D %.9P %6t"
_BY_NODE_LONG = "%N %.6D %.9P %.11T %4c %.8m %20E"
_REASONS = "%20E %N"
_REFUSED = {
    "json": "it prints no JSON of Slurm's; dlq nodes --json",
    "yaml": "it prints no YAML; dlq nodes --json",
}
GRAMMAR = Grammar(
    "sinfo",
    {
        "h": "noheader", "o": "format", "p": "partition", "n": "nodes", "t": "states", "N": "Node",
        "l": "long", "R": "list-reasons", "M": "clusters", "e": "exact", "a": "all", "r": "responding",  # noqa: E501
    },
    frozenset({"format", "partition", "nodes", "states", "clusters"}),
    frozenset(
        {"noheader", "Node", "long", "list-reasons", "exact", "all", "responding", "json", "yaml",
         "local"}
    ),
    _REFUSED,
)  # fmt: skip
_DOWN = frozenset({"unreachable", "down"})
_DRAINED = frozenset({"draining", "cordoned", "cleaning", "quarantined"})
_SHORT = {
    "allocated": "alloc", "mixed": "mix", "drained": "drain", "draining": "drng",
    "maint": "maint", "unknown": "unk",
}  # fmt: skip


class SinfoLine(NamedTuple):
    """One node in one partition."""

    partition: str
    is_default: bool
    node: node_pb2.Node


class SinfoField(NamedTuple):
    """One letter. Nodes with equal texts share a line; a text of None is that of the whole line."""

    heading: str
    text: Callable[[SinfoLine], str] | None


def state_of(node: node_pb2.Node) -> str:
    """`idle`, `mixed`, `allocated`, `drained`, `draining`, `down`, `maint`; `*`: it does not
    answer.
    """
    state = NODE_STATES.get(node.state) or "unknown"
    if state in _DOWN:
        return "down*"
    busy = len(node.gpus) - node.free_gpu_count - len(node.withheld_gpu_indexes) > 0
    silent = "*" if state == "suspect" else ""
    if _DRAINED & set(node.flags):
        return ("draining" if node.attempts else "drained") + silent
    if "maintenance" in node.flags:
        return "maint" + silent
    if not busy or not node.attempts:
        return "idle" + silent
    return ("mixed" if node.free_gpu_count else "allocated") + silent


def _short(line: SinfoLine) -> str:
    state = state_of(line.node)
    word = state.rstrip("*")
    return _SHORT.get(word, word) + state[len(word) :]


def _gres(line: SinfoLine) -> str:
    counts = Counter(gpu.gpu_type for gpu in line.node.gpus)
    return ",".join(f"gpu:{kind}:{count}" for kind, count in sorted(counts.items())) or NULL


def _reason(line: SinfoLine) -> str:
    told = [one.words or one.kind for one in line.node.reasons]
    return told[0] if told else line.node.flag_reason or "none"


def _cpu_states(line: SinfoLine) -> str:
    """Allocated/idle/other/total: CPUs are not counted here, so they are idle or out."""
    cpus = line.node.cpu_count
    word = state_of(line.node).rstrip("*")
    idle = cpus if word in {"idle", "mixed", "allocated"} else 0
    return f"0/{idle}/{cpus - idle}/{cpus}"


FIELDS: Mapping[str, SinfoField] = {
    "P": SinfoField("PARTITION", lambda line: line.partition + ("*" if line.is_default else "")),
    "R": SinfoField("PARTITION", lambda line: line.partition),
    "a": SinfoField("AVAIL", lambda line: "up"),
    "l": SinfoField("TIMELIMIT", lambda line: "infinite"),
    "D": SinfoField("NODES", None),
    "N": SinfoField("NODELIST", None),
    "n": SinfoField("HOSTNAMES", lambda line: line.node.hostname),
    "o": SinfoField("NODE_ADDR", lambda line: line.node.node_id),
    "t": SinfoField("STATE", _short),
    "T": SinfoField("STATE", lambda line: state_of(line.node)),
    "c": SinfoField("CPUS", lambda line: str(line.node.cpu_count)),
    "m": SinfoField("MEMORY", lambda line: str(line.node.memory_bytes >> 20)),
    "G": SinfoField("GRES", _gres),
    "f": SinfoField(
        "AVAIL_FEATURES",
        lambda line: ",".join(f"{k}={v}" for k, v in sorted(line.node.labels.items())) or NULL,
    ),
    "E": SinfoField("REASON", _reason),
    "C": SinfoField("CPUS(A/I/O/T)", _cpu_states),
}
_LETTER = re.compile(r"%(\.?)(\d*)([A-Za-z])")


def main(app: App, words: Sequence[str]) -> None:
    """One line for nodes that print alike."""
    given = read(GRAMMAR, words)
    text = _format(given)
    only_here(app, given, GRAMMAR)
    lines = _lines(app, given)
    each = "Node" in given.options
    groups: dict[tuple[str, ...], list[SinfoLine]] = {}
    for line in lines:
        alike = tuple(field.text(line) for field in _letters(text) if field.text is not None) + (
            (line.node.node_id,) if each else ()
        )
        groups.setdefault(alike, []).append(line)
    if "noheader" not in given.options:
        click.echo(_filled(text, lambda field: field.heading))
    for alike_lines in groups.values():
        click.echo(_filled(text, lambda field, group=alike_lines: _text(field, group)))  # type: ignore[misc]


def _format(given: SlurmWords) -> str:
    options = given.options
    if "list-reasons" in options:
        default = _REASONS
    elif "Node" in options:
        default = _BY_NODE_LONG if "long" in options else _BY_NODE
    else:
        default = DEFAULT
    text = options.get("format") or default
    for found in _LETTER.finditer(text):
        if found[3] not in FIELDS:
            raise InvalidRequest(
                f"sinfo: dlq's stand-in has no %{found[3]}", hint="letters: " + "".join(FIELDS)
            )
    return text


def _letters(text: str) -> list[SinfoField]:
    return [FIELDS[found[3]] for found in _LETTER.finditer(text)]


def _lines(app: App, given: SlurmWords) -> list[SinfoLine]:
    connection = app.connection()
    partitions, states = given.listed("partition"), given.listed("states")
    try:
        named = set(expand_hostlist(given.options["nodes"])) if "nodes" in given.options else set()
    except ValueError as error:
        raise InvalidRequest(f"sinfo: --nodes: {error}") from None
    nodes = Nodes(connection).list()
    lines = [
        SinfoLine(queue.name, queue.is_default, node)
        for queue in Queues(connection).list()
        if not partitions or queue.name in partitions
        for node in nodes
        if not named or node.node_id in named
    ]
    if "list-reasons" in given.options:
        lines = [line for line in lines if _reason(line) != "none"]
    return [line for line in lines if not states or _is_in(line, states)]


def _is_in(line: SinfoLine, states: Sequence[str]) -> bool:
    long = state_of(line.node).rstrip("*")
    mine = {long, _SHORT.get(long, long), "all"}
    if long in ("drained", "draining"):
        mine |= {"drain"}
    return bool(mine & {state.lower() for state in states})


def _text(field: SinfoField, group: Sequence[SinfoLine]) -> str:
    names = dict.fromkeys(line.node.node_id for line in group)
    if field.text is not None:
        return field.text(group[0])
    return str(len(names)) if field.heading == "NODES" else compress_hostlist(names)


def _filled(text: str, text_of: Callable[[SinfoField], str]) -> str:
    def fill(found: re.Match[str]) -> str:
        word, width = clean_line(text_of(FIELDS[found[3]])), int(found[2] or 0)
        if not width:
            return word
        return word[:width].rjust(width) if found[1] else word[:width].ljust(width)

    return _LETTER.sub(fill, text).rstrip()
