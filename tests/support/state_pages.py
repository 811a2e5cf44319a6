"""The state tables as pages: one diagram and one line per edge, printed from the tables alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from enum import StrEnum
from inspect import cleandoc

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import ENDED
from dlq_master.model.lease import Terms
from dlq_master.model.machines import rented
from dlq_master.model.nodes import node_steps

Table = Mapping[tuple[StrEnum, type], StrEnum]
GENERATED = "<!-- Generated from the code by tests/support/state_charts.py; do not edit. -->"


def pages() -> dict[str, str]:
    """File name -> text, for `docs/reference/states`."""
    return {
        "job.md": page("Job", job_steps.TABLE, ENDED),  # type: ignore[arg-type]  # keys are narrower
        "attempt.md": page("Attempt", attempt_steps.TABLE),  # type: ignore[arg-type]
        "node.md": page("Node", node_steps.TABLE),  # type: ignore[arg-type]
        "lease.md": lease_page(),
        "machine.md": edges_page("Machine", rented.EDGES),  # type: ignore[arg-type]
    }


def page(name: str, table: Table, ended: Collection[StrEnum] = ()) -> str:
    """The machine's diagram, and its events in words. Edges that stay in a state are only listed.
    `ended`: states in which it has ended, although one may be put right."""
    states = list(type(next(iter(table))[0]))
    sources = {state for state, _ in table}
    lines = [GENERATED, "", f"# {name}", "", "```mermaid", "stateDiagram-v2"]
    lines += [f"    {_drawn(edge)}" for edge in _edges(table)]
    lines += [
        f"    {state.value} --> [*]" for state in states if state in ended or state not in sources
    ]
    lines += ["```", "", "| event | when | from | to |", "|---|---|---|---|"]
    events = dict.fromkeys(event for _, event in table)
    for event in events:
        target_of = {state: to for (state, other), to in table.items() if other is event}
        moved = dict.fromkeys(to for state, to in target_of.items() if to is not state)
        for to in moved:
            froms = [state for state, target in target_of.items() if target is to is not state]
            lines.append(_row(event, froms, to.value))
        stays = [state for state, target in target_of.items() if target is state]
        if stays:
            lines.append(_row(event, stays, "the same"))
    return "\n".join(lines) + "\n"


def edges_page(name: str, edges: Mapping[tuple[StrEnum, StrEnum], str]) -> str:
    """A machine that is moved without events: its diagram, and the causes of its moves."""
    first = next(iter(edges))[0]
    lines = [GENERATED, "", f"# {name}", "", "```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {first.value}"]
    lines += [f"    {state.value} --> {target.value}" for state, target in edges]
    sources = {state for state, _ in edges}
    lines += [f"    {state.value} --> [*]" for state in type(first) if state not in sources]
    lines += ["```", "", "| from | to | when |", "|---|---|---|"]
    lines += [f"| {state.value} | {to.value} | {words} |" for (state, to), words in edges.items()]
    return "\n".join(lines) + "\n"


def lease_page() -> str:
    """A lease is a value: its holder, and the instants that end it, with the default numbers."""
    terms = Terms()
    lines = [
        GENERATED,
        "",
        "# Lease",
        "",
        "A lease is a value of an attempt, not a machine: an attempt holds its lease while it is "
        "live.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> granted: Start (a short first term, to a boundary of the grid)",
        "    granted --> granted: Renew (decided save_lead_s before term_end)",
        "    granted --> leaving: Lapse (only at term_end), Revoke, StopRequested",
        "    granted --> silent: NodeSilent",
        "    silent --> granted: Returned...",
        "    silent --> ended: reclaim (last contact + hold_s + hold_margin_s)",
        "    leaving --> ended: every rank is confirmed gone",
        "    granted --> ended: every rank is confirmed gone",
        "    ended --> [*]",
        "```",
        "",
        "| constant | default |",
        "|---|---|",
    ]
    lines += [f"| {field.name} | {getattr(terms, field.name):g} |" for field in fields(terms)]
    return "\n".join(lines) + "\n"


def _edges(table: Table) -> list[tuple[StrEnum, StrEnum, list[str]]]:
    labels: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for (state, event), target in table.items():
        if state is not target:
            labels.setdefault((state, target), []).append(event.__name__)
    return [(state, target, names) for (state, target), names in labels.items()]


def _row(event: type, froms: list[StrEnum], to: str) -> str:
    names = ", ".join(state.value for state in froms)
    return f"| {event.__name__} | {_summary(event)} | {names} | {to} |"


def _drawn(edge: tuple[StrEnum, StrEnum, list[str]]) -> str:
    state, target, names = edge
    return f"{state.value} --> {target.value}: {', '.join(names)}"


def _summary(event: type) -> str:
    return " ".join(cleandoc(event.__doc__ or "").split("\n\n")[0].split()).replace("|", "/")
