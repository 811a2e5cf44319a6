"""`dlq nodes`: the machines, their GPUs, and why some are not used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import click

from dlq.v1 import node_pb2
from dlq.v1.node_service_pb2 import ListNodesRequest
from dlq_cli.app import App
from dlq_cli.commands.cluster.queues import say_freeze
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.cluster import node_facts
from dlq_cli.facts.common import document
from dlq_cli.output.render import Cell, OutputLook, clean_line, facts, paint, table, when
from dlq_cli.words import NODE_STATES
from dlq_client.nodes import Nodes
from dlq_client.queues import Queues
from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.text.hostlist import compress_hostlist, expand_hostlist
from dlq_common.text.units import approximate_size
from dlq_common.text.wire import from_timestamp


@click.command(
    epilog=examples(
        "dlq nodes",
        "dlq nodes -l",
        "dlq nodes -R",
        "dlq nodes gpu[01-08]",
        "dlq nodes --json",
        "dlq nodes -t suspect,unreachable",
        "dlq nodes --flag draining --type H100-80GB",
    )
)
@click.option("-t", "--state", default="", metavar="STATE,...", help="Only in one of these states.")
@click.option("--flag", default="", metavar="FLAG,...", help="Only with one of these flags.")
@click.option("--type", "gpu_type", default="", help="Only with a GPU of this type.")
@click.option(
    "--search",
    "words",
    default="",
    metavar="WORDS",
    help="Only with these in the name, host name or labels.",
)
@click.option("-l", "--long", "each", is_flag=True, help="One line for each node.")
@click.option(
    "-R", "--reasons", is_flag=True, help="Nodes that take no work: reason, author, time."
)
@click.option("--no-header", is_flag=True, help="No headings.")
@json_option
@click.argument("node", nargs=-1)
@pass_app
def nodes(
    app: App,
    node: tuple[str, ...],
    state: str,
    flag: str,
    gpu_type: str,
    words: str,
    each: bool,
    reasons: bool,
    no_header: bool,
    as_json: bool,
) -> None:
    """The nodes, equal ones on one line; of a single NODE everything."""
    connection = app.connection()
    filters = ListNodesRequest(
        states=_listed(state), flags=_listed(flag), gpu_type=gpu_type, text=words
    )
    found = chosen_nodes(Nodes(connection), node, filters)
    if reasons:
        found = [one for one in found if reasons_of(one)]
    look = app.look()
    if as_json:
        click.echo(document({"nodes": [node_facts(one) for one in found]}))
        return
    if len(node) == 1 and len(found) == 1 and not each:
        click.echo(node_text(found[0], look), nl=False, color=look.color)
    elif reasons:
        click.echo(_reasons(found, look, headings=not no_header), nl=False, color=look.color)
    else:
        click.echo(
            _list(found, look, each=each, headings=not no_header), nl=False, color=look.color
        )
    say_freeze(app, Queues(connection).cluster())


def _listed(text: str) -> list[str]:
    return [word.strip().lower() for word in text.split(",") if word.strip()]


def chosen_nodes(
    api: Nodes, words: Sequence[str], filters: ListNodesRequest | None = None
) -> list[node_pb2.Node]:
    """All nodes, or those of some host lists; NotFound for one that is not there. The master
    applies the filters.
    """
    if filters is not None and filters.ByteSize():
        if words:
            raise InvalidRequest("name nodes, or choose among all of them: not both")
        return list(api.list(filters))
    if not words:
        return list(api.list())
    names = names_of(words)
    if len(names) == 1:
        return [api.get(names[0])]
    known = {node.node_id: node for node in api.list()}
    for name in names:
        if name not in known:
            raise NotFound(f"there is no node {name}", kind="node", id=name)
    return [known[name] for name in names]


def names_of(words: Sequence[str]) -> list[str]:
    """The node names of `gpu[01-08] login1`, each once."""
    try:
        return list(dict.fromkeys(name for word in words for name in expand_hostlist(word)))
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def state_of(node: node_pb2.Node) -> str:
    """The node's liveness as a word."""
    return NODE_STATES.get(node.state) or "unknown"


def labels(node: node_pb2.Node) -> list[str]:
    """Facts that a user must know of a node before believing its report."""
    return [
        *(["virtual devices"] if node.virtual_devices else []),
        *(["jobs run as root"] if node.root_jobs else []),
        *(
            ["inference, not lent"]
            if node.pool == "inference" and "loaned" not in node.flags
            else []
        ),
        *(["rented"] if node.pool == "priced" else []),
        *(["suspected straggler"] if node.straggler.suspected else []),
        *([f"{withheld} withheld"] if (withheld := len(node.withheld_gpu_indexes)) else []),
    ]


def reasons_of(node: node_pb2.Node) -> list[node_pb2.NodeReason]:
    """The reasons that keep a node from work; flags become reasons for a master that sends none."""
    if node.reasons:
        return list(node.reasons)
    told = [node_pb2.NodeReason(kind=flag, words=node.flag_reason) for flag in node.flags]
    if state_of(node) != "up":
        told.insert(0, node_pb2.NodeReason(kind=state_of(node)))
    if node.withheld_gpu_indexes:
        told.append(node_pb2.NodeReason(kind="withheld", words=node.withheld_reason))
    return told


def gpu_types(node: node_pb2.Node) -> str:
    """`8 x h100-80gb`, a sum for mixed nodes; with the speed of a type where one is declared."""
    counts: dict[str, int] = defaultdict(int)
    for gpu in node.gpus:
        counts[gpu.gpu_type] += 1
    kinds = [(f"{count} x {kind}", kind) for kind, count in sorted(counts.items())]
    speeds = node.declared_gpu_speeds
    told = [f"{text} (speed {speeds[kind]:g})" if kind in speeds else text for text, kind in kinds]
    return " + ".join(told) or "none"


def measured_speeds(node: node_pb2.Node) -> str:
    """How fast its GPU types have proven to be, in words; empty: nobody knows."""
    measured = node.measured_gpu_speeds
    return ", ".join(f"{kind} {speed:g}" for kind, speed in sorted(measured.items()))


def step_times(node: node_pb2.Node) -> str:
    """How much longer it works on a step than its peers, in words; empty: nobody knows."""
    if not node.HasField("straggler"):
        return ""
    told = node.straggler
    head = "suspected straggler: " if told.suspected else ""
    gangs = "1 gang" if told.gang_count == 1 else f"{told.gang_count} gangs"
    return (
        f"{head}{told.excess_percent:+.1f} % against its peers, over {told.step_count} steps of"
        f" {gangs}; {clean_line(told.words)}"
    )


def node_text(node: node_pb2.Node, look: OutputLook) -> str:
    """Everything about one node."""
    head = f"Node {clean_line(node.node_id)}: {paint(state_of(node), look)}\n"
    return head + facts(node_pairs(node, look))


def node_pairs(node: node_pb2.Node, look: OutputLook) -> tuple[tuple[str, str], ...]:
    """The known facts of a node beside its name and state; an empty text is not known."""
    contact = from_timestamp(node.contact_time) if node.HasField("contact_time") else None
    return (
        ("flags", ", ".join(node.flags)),
        ("maintenance", _maintenance(node, look)),
        *((one.kind, _told(one, look)) for one in reasons_of(node)),
        ("gpus", gpu_types(node)),
        ("measured speed", measured_speeds(node)),
        ("step times", step_times(node)),
        ("free gpus", f"{node.free_gpu_count} of {len(node.gpus)}"),
        ("cpu jobs", _job_cores(node)),
        ("labels", labels_text(node)),
        ("note", ", ".join(labels(node))),
        ("attempts", ", ".join(node.attempts) or "none"),
        ("host", node.hostname),
        ("cores", str(node.cpu_count) if node.cpu_count else ""),
        ("memory", approximate_size(node.memory_bytes) if node.memory_bytes else ""),
        ("last contact", when(contact, look) or "none since the master started"),
        ("agent", node.agent_version),
        ("boot", node.boot_id),
    )


def _job_cores(node: node_pb2.Node) -> str:
    """The cores for jobs without GPUs, in words; empty: it gives none."""
    if not node.job_core_count:
        return ""
    each = approximate_size(node.core_memory_bytes) if node.core_memory_bytes else ""
    told = f"{node.free_core_count} of {node.job_core_count} cores free"
    return f"{told}, {each} each" if each else told


def labels_text(node: node_pb2.Node) -> str:
    """The labels that operators gave the node: `disk=fast,rack=r1`."""
    return ",".join(f"{name}={value}" for name, value in sorted(node.labels.items()))


def _told(reason: node_pb2.NodeReason, look: OutputLook) -> str:
    about = ", ".join(word for word in (reason.actor, since_of(reason, look)) if word)
    return f"{reason.words} ({about})" if about else reason.words


def _maintenance(node: node_pb2.Node, look: OutputLook) -> str:
    """The end of the agent's announced absence, in words; empty: none is announced."""
    if not node.HasField("maintenance_end_time"):
        return ""
    return f"its agent may be away until {when(from_timestamp(node.maintenance_end_time), look)}"


def _list(found: Iterable[node_pb2.Node], look: OutputLook, *, each: bool, headings: bool) -> str:
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node in found:
        alike = (
            state_of(node),
            ",".join(node.flags),
            gpu_types(node),
            f"{node.free_gpu_count}/{len(node.gpus)}",
            approximate_size(node.memory_bytes) if node.memory_bytes else "",
            ", ".join(labels(node)),
            labels_text(node),
            f"{node.free_core_count}/{node.job_core_count}" if node.job_core_count else "",
            *([node.node_id, ",".join(node.attempts)] if each else []),
        )
        groups[alike].append(node.node_id)
    shows_labels = any(alike[6] for alike in groups)
    shows_cores = any(alike[7] for alike in groups)
    cells = [
        Cell("NODES"),
        Cell("COUNT", right=True),
        Cell("STATE", state=True),
        Cell("FLAGS"),
        Cell("GPUS"),
        Cell("FREE", right=True),
        Cell("MEMORY", right=True),
        *([Cell("CORES", right=True)] if shows_cores else []),
        *([Cell("LABELS")] if shows_labels else []),
        *([Cell("ATTEMPTS")] if each else []),
        Cell("NOTE"),
    ]
    rows = [
        [
            compress_hostlist(names),
            str(len(names)),
            *alike[:5],
            *(alike[7:8] if shows_cores else []),
            *(alike[6:7] if shows_labels else []),
            *(alike[9:10] if each else []),
            alike[5],
        ]
        for alike, names in groups.items()
    ]
    return table(cells, rows, look, headings=headings)


def _reasons(found: Iterable[node_pb2.Node], look: OutputLook, *, headings: bool) -> str:
    """One line for each reason that keeps a node, or some of its GPUs, from work, with its author
    and its time.
    """
    cells = [
        Cell("NODE"),
        Cell("STATE", state=True),
        Cell("WHAT"),
        Cell("BY"),
        Cell("SINCE"),
        Cell("REASON"),
    ]
    rows = [
        [node.node_id, state_of(node), one.kind, one.actor, since_of(one, look), one.words]
        for node in found
        for one in reasons_of(node)
    ]
    return table(cells, rows, look, headings=headings)


def since_of(reason: node_pb2.NodeReason, look: OutputLook) -> str:
    """How long ago it began; empty: not known."""
    return when(from_timestamp(reason.since_time), look) if reason.HasField("since_time") else ""
