"""Nodes from the master, with what the running jobs have declared on each."""

from __future__ import annotations

from collections import Counter

from dlq_cli.app import App
from dlq_cli.slurm.jobs.listing import everybody
from dlq_cli.slurm.nodes.facts import SeenNode, seen_nodes
from dlq_client.nodes import Nodes


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
