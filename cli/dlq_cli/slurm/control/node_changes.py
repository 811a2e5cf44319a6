"""`scontrol update NodeName=... State=...`: drains and resumes nodes, for operators."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_client.admin import Admin
from dlq_client.nodes import Nodes
from dlq_common.errors import PermissionDenied
from dlq_common.text.hostlist import expand_hostlist

_CLOSING = frozenset({"drain", "draining", "drained"})
_DYING = frozenset({"down", "fail", "failing"})
_OPENING = frozenset({"resume", "idle", "undrain"})


def update_nodes(app: App, rest: Sequence[str]) -> None:
    """State=DRAIN with a reason, or State=RESUME. SlurmSays for anything else."""
    said = {name.lower(): value for name, _, value in (word.partition("=") for word in rest)}
    state, reason = said.get("state", "").lower(), said.get("reason", "").strip("'\"")
    more = said.keys() - {"nodename", "node", "state", "reason"}
    if more or not state:
        wrong = next((word for word in rest if word.partition("=")[0].lower() in more), rest[0])
        raise SlurmSays(f"Update of this parameter is not supported: {wrong}", "Request aborted")
    if state in _CLOSING | _DYING and not reason:
        raise SlurmSays("You must specify a reason when DOWNING or DRAINING a node. Request denied")
    if state in _DYING:
        raise SlurmSays(
            f"scontrol: error: state={state} would end the jobs of the node: `dlq admin node "
            "drain` lets them save first, `dlq admin node fence` is for a machine that is off"
        )
    if state not in _CLOSING | _OPENING:
        raise SlurmSays(f"Invalid input: state={state}", "Request aborted")
    try:
        names = list(expand_hostlist(said.get("nodename") or said.get("node", "")))
    except ValueError as error:
        raise SlurmSays(f"Invalid node name: {error}") from None
    known = {node.node_id for node in Nodes(app.connection()).list()}
    if set(names) - known:
        raise SlurmSays("slurm_update error: Invalid node name specified")
    try:
        if names:
            _set(Admin(app.connection()), names, closing=state in _CLOSING, reason=reason)
    except PermissionDenied:
        raise SlurmSays("slurm_update error: Invalid user id") from None


def _set(admin: Admin, names: Sequence[str], *, closing: bool, reason: str) -> None:
    """Slurm's drain leaves running jobs where they are, as dlq's cordon does."""
    first, *more = names
    if closing:
        admin.set_node_flags(first, set_flags=["cordoned"], reason=reason, more=more)
    else:
        admin.set_node_flags(first, clear_flags=["cordoned", "draining"], more=more)
