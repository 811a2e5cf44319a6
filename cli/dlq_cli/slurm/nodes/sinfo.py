"""`sinfo`: the queues as partitions, each over all nodes, and the nodes in Slurm's words."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial

import click

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_cli.output.slurm_page import show
from dlq_cli.slurm import columns as layout
from dlq_cli.slurm.nodes.facts import SeenNode, all_nodes, short
from dlq_cli.slurm.nodes.fields import NODE_FIELDS, SinfoRow, alike_key
from dlq_cli.slurm.nodes.pages import reservation_pages
from dlq_cli.slurm.words import Grammar, SlurmWords, only_here, read, whole_seconds
from dlq_client.queues import Queues
from dlq_common.text.hostlist import expand_hostlist

_DEFAULT = "%#P %.5a %.10l %.6D %.6t %N"
_LONG = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
_SUMMARY = "%#P %.5a %.10l %.16F %N"
_BY_NODE = "%#N %.6D %#P %6t"
_BY_NODE_LONG = "%#N %.6D %#P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
_REASONS = "%20E %9u %19H %N"
_REASONS_LONG = "%20E %12U %19H %6t %N"
GRAMMAR = Grammar(
    "sinfo",
    {
        "a": "all", "d": "dead", "e": "exact", "h": "noheader", "i": "iterate", "l": "long",
        "M": "clusters", "N": "Node", "n": "nodes", "o": "format", "O": "Format",
        "p": "partition", "r": "responding", "R": "list-reasons", "s": "summarize", "S": "sort",
        "t": "states", "T": "reservation", "v": "verbose",
    },
    frozenset(
        {"clusters", "cluster", "format", "Format", "iterate", "nodes", "partition", "sort", "states"}  # noqa: E501
    ),
    frozenset(
        {
            "all", "dead", "exact", "federation", "future", "hide", "json", "list-reasons", "local",
            "long", "Node", "noheader", "noconvert", "reservation", "responding", "summarize",
            "usage", "verbose", "yaml",
        }
    ),
    same={"cluster": "clusters"},
    takes_words=True,
)  # fmt: skip
_USAGE = """\
Usage: sinfo [-abdelNRrsTv] [-i seconds] [-t states] [-p partition] [-n nodes]
             [-S fields] [-o format] [-O Format] [--federation] [--local]"""
_STATES = (
    "unknown,down,idle,allocated,?,mixed,future,drain,drained,draining,no_respond,reserved,"
    "perfctrs,cloud,completing,powering_down,powered_down,power_down,powering_up,fail,maint,"
    "reboot,reboot^,unknown"
)
_KNOWN_STATES = frozenset(_STATES.split(",")) | {"alloc", "mix", "comp", "unk", "down*", "all"}


def main(app: App, words: Sequence[str]) -> None:
    """One line for nodes that print alike."""
    given = read(GRAMMAR, words)
    more = {name: os.environ[word] for word, name in _VARIABLES.items() if os.environ.get(word)}
    given = given._replace(options={**more, **given.options})
    if "usage" in given.options:
        click.echo(_USAGE)
        return
    if "json" in given.options or "yaml" in given.options:
        from dlq_cli.slurm.nodes.openapi import nodes_page

        queues = [queue.name for queue in Queues(app.connection()).list()]
        show(nodes_page(all_nodes(app), queues), as_yaml="yaml" in given.options)
        return
    every_s = _seconds(given)
    while True:
        _print(app, given)
        if every_s is None:
            return
        time.sleep(every_s)
        click.echo()


_VARIABLES = {"SINFO_PARTITION": "partition", "SINFO_SORT": "sort"}


def _seconds(given: SlurmWords) -> int | None:
    text = given.options.get("iterate")
    if text is None:
        return None
    every_s = whole_seconds(text)
    if not every_s:
        raise SlurmSays(f"sinfo: error: Error: invalid entry for --iterate={text[:40]}")
    return every_s


def _print(app: App, given: SlurmWords) -> None:
    headed = "noheader" not in given.options
    if headed and {"long", "iterate"} & given.options.keys():
        click.echo(time.ctime())
    cluster = only_here(app, given, GRAMMAR)
    if cluster and headed:
        click.echo(f"CLUSTER: {cluster}")
    if "reservation" in given.options:
        click.echo(
            "\n".join(reservation_pages(app, one_line=True)) or "No reservations in the system"
        )
        return
    rows = _partitions(app, given)
    columns = _columns(given, rows)
    if "noheader" not in given.options:
        click.echo(layout.heading(columns))
    alike = _alike(rows, columns, given)
    for line in layout.lines(columns, _sorted(alike, given.options.get("sort", ""))):
        click.echo(line)


def _columns(given: SlurmWords, rows: Sequence[SinfoRow]) -> list[layout.LaidOut[SinfoRow]]:
    if names := given.options.get("Format"):
        return NODE_FIELDS.by_names(names)
    text = given.options.get("format") or os.environ.get("SINFO_FORMAT") or _default(given)
    widths = {
        "%#P": max([len(row.queue.name) + row.queue.is_default for row in rows] + [9]),
        "%#N": max([len(node.name) for row in rows for node in row.nodes] + [9]),
    }
    for mark, width in widths.items():
        text = text.replace(
            mark, f"%{'.' if mark == '%#P' and 'Node' in given.options else ''}{width}{mark[-1]}"
        )
    return NODE_FIELDS.by_letters(text)


def _default(given: SlurmWords) -> str:
    said = given.options.keys()
    if "summarize" in said:
        return _SUMMARY
    if "list-reasons" in said:
        return _REASONS_LONG if "long" in said else _REASONS
    if "Node" in said:
        return _BY_NODE_LONG if "long" in said else _BY_NODE
    return _LONG if "long" in said else _DEFAULT


def _partitions(app: App, given: SlurmWords) -> list[SinfoRow]:
    """Each partition with the nodes that the options leave."""
    named = given.listed("partition")
    nodes = [node for node in all_nodes(app) if _is_wanted(node, given)]
    return [
        SinfoRow(queue, nodes)
        for queue in sorted(Queues(app.connection()).list(), key=lambda queue: queue.name)
        if not named or queue.name in named
    ]


def _is_wanted(node: SeenNode, given: SlurmWords) -> bool:
    states = [state.lower() for state in given.listed("states")]
    for state in states:
        if state not in _KNOWN_STATES:
            raise SlurmSays(
                f'sinfo: error: Bad state string: "{state[:40]}"',
                f"sinfo: error: valid states: {_STATES}",
            )
    answers = not node.state.endswith("*")
    if ("dead" in given.options and answers) or ("responding" in given.options and not answers):
        return False
    if "list-reasons" in given.options and not node.reason:
        return False
    if "nodes" in given.options and node.name not in _named_nodes(given.options["nodes"]):
        return False
    return not states or _is_in(node, states)


def _named_nodes(text: str) -> set[str]:
    try:
        return set(expand_hostlist(text))
    except ValueError as error:
        raise SlurmSays(f"sinfo: error: Invalid node list: {error}") from None


def _is_in(node: SeenNode, states: Sequence[str]) -> bool:
    bare = node.state.rstrip("*")
    mine = {bare, short(bare), "all", node.state}
    mine |= {"drain"} if bare in ("drained", "draining") else set()
    mine |= {"no_respond"} if node.state.endswith("*") else set()
    return bool(mine & set(states))


def _alike(
    rows: Sequence[SinfoRow], columns: Sequence[layout.LaidOut[SinfoRow]], given: SlurmWords
) -> list[SinfoRow]:
    """The lines: with -N one for each node and partition, by node."""
    fields = [column.field for column in columns if column.field is not None]
    if "Node" in given.options:
        single = [SinfoRow(row.queue, [node]) for row in rows for node in row.nodes]
        order = {node.name: place for row in rows[:1] for place, node in enumerate(row.nodes)}
        return sorted(single, key=lambda row: order[row.nodes[0].name])
    groups: dict[tuple[str, ...], list[SeenNode]] = {}
    queues = {row.queue.name: row.queue for row in rows}
    for row in rows:
        for node in row.nodes:
            one = SinfoRow(row.queue, [node])
            key = tuple(alike_key(field, one, exact="exact" in given.options) for field in fields)
            groups.setdefault((row.queue.name, *key), []).append(node)
        if not row.nodes and "list-reasons" not in given.options:
            groups[(row.queue.name,)] = []
    return [SinfoRow(queues[key[0]], nodes) for key, nodes in _in_order(groups)]


def _sorted(rows: list[SinfoRow], text: str) -> list[SinfoRow]:
    """As -S asks, the last letter counts least; `#`, and letters without a field, say nothing."""
    falling, wishes = False, []
    for char in text:
        if char in "-+":
            falling = char == "-"
        elif char in NODE_FIELDS.by_letter:
            wishes.append((char, falling))
            falling = False
    for letter, down in reversed(wishes):
        rows = sorted(rows, key=partial(_sort_key, letter), reverse=down)
    return rows


def _sort_key(letter: str, row: SinfoRow) -> tuple[float, str]:
    """Numbers before texts; states from idle to down."""
    if letter in ("t", "T"):
        state = row.nodes[0].state.rstrip("*") if row.nodes else ""
        return (-float(_RANKS.index(state)) if state in _RANKS else 1.0, "")
    said = NODE_FIELDS.by_letter[letter].text(row)
    return (float(said), "") if said.isdecimal() else (0.0, said)


_RANKS = ("down", "drained", "draining", "maint", "mixed", "allocated", "idle")


def _in_order(
    groups: dict[tuple[str, ...], list[SeenNode]],
) -> list[tuple[tuple[str, ...], list[SeenNode]]]:
    """Partitions by name, in each the worst states first, as Slurm sorts by `#P,-t`."""
    rank = {state: place for place, state in enumerate(_RANKS)}
    return sorted(
        groups.items(),
        key=lambda item: (
            item[0][0],
            rank.get(item[1][0].state.rstrip("*"), len(_RANKS)) if item[1] else 0,
        ),
    )
