"""`dlq admin node`: drain, cordon, release, accept, clear, fence and forget nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from dlq.v1 import node_pb2
from dlq_cli.app import App
from dlq_cli.commands.cluster.nodes import (
    chosen_nodes,
    labels_text,
    names_of,
    node_text,
    nodes,
    state_of,
)
from dlq_cli.commands.options import (
    examples,
    json_option,
    never_asks_option,
    pass_app,
    yes_option,
)
from dlq_cli.facts.cluster import node_facts
from dlq_cli.facts.common import document, tell
from dlq_cli.output.render import clean_line
from dlq_client.admin import Admin
from dlq_client.jobs import SEE_ALL, Jobs
from dlq_client.nodes import Nodes
from dlq_client.queues import Queues
from dlq_common.errors import InvalidRequest, PermissionDenied
from dlq_common.job_fields.reading.choice import read_node_label
from dlq_common.text.names import check_word

DRAINING, CORDONED, QUARANTINED = "draining", "cordoned", "quarantined"
_some_nodes = click.argument("node_id", nargs=-1, required=True, metavar="NODE...")
_reason = click.option("--reason", required=True, metavar="TEXT", help="Words for people.")


@click.group()
def node() -> None:
    """Drain, cordon, release, accept, clear, fence and forget nodes. NODE may be a list:
    gpu[01-08].
    """


node.add_command(nodes, "list")


@node.command(epilog=examples("dlq admin node show gpu07"))
@json_option
@_some_nodes
@pass_app
def show(app: App, node_id: tuple[str, ...], as_json: bool) -> None:
    """Everything about NODE..."""
    found = chosen_nodes(Nodes(app.connection()), node_id)
    look = app.look()
    if as_json:
        click.echo(document({"nodes": [node_facts(one) for one in found]}))
        return
    click.echo("\n".join(node_text(one, look) for one in found), nl=False, color=look.color)


@node.command(epilog=examples("dlq admin node drain gpu07 --reason 'fan is dead'"))
@_reason
@yes_option
@json_option
@_some_nodes
@pass_app
def drain(app: App, node_id: tuple[str, ...], reason: str, yes: bool, as_json: bool) -> None:
    """Let no new work start on NODE..., and move its jobs away.

    Asks first if jobs would lose work that nothing is known to save.
    """
    _must_operate(app)
    found = chosen_nodes(Nodes(app.connection()), node_id)
    if _attempts(found):
        losses = _losses(app, found)
        impact = f"draining {_names(found)} moves {_attempts(found)} away"
        app.confirm("; ".join((impact, *losses)), yes=yes)
    _set(app, found, DRAINING, reason, as_json=as_json, accept_loss=True)


@node.command(epilog=examples("dlq admin node cordon gpu07 --reason 'look at it first'"))
@_reason
@json_option
@_some_nodes
@pass_app
def cordon(app: App, node_id: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Let no new work start on NODE...; jobs that run there go on."""
    _set(app, chosen_nodes(Nodes(app.connection()), node_id), CORDONED, reason, as_json=as_json)


def _clears(name: str, flag: str, words: str, asks: Callable[..., Any] = lambda it: it) -> None:
    """A command that takes a flag off nodes; `asks`: its `-y`, where the setting one has it."""

    @node.command(name, epilog=examples(f"dlq admin node {name} gpu07"), help=words)
    @asks
    @json_option
    @_some_nodes
    @pass_app
    def clears(app: App, node_id: tuple[str, ...], as_json: bool) -> None:
        first, *more = [one.node_id for one in chosen_nodes(Nodes(app.connection()), node_id)]
        answer = Admin(app.connection()).set_node_flags(first, clear_flags=[flag], more=more)
        _tell_nodes((answer.node, *answer.more_nodes), as_json=as_json)


_clears("undrain", DRAINING, "Let work start on NODE... again.", never_asks_option)
_clears("uncordon", CORDONED, "Let work start on NODE... again.")
_clears(
    "unquarantine",
    QUARANTINED,
    "Let work start again on NODE..., on which different jobs had failed one after the other.",
)


@node.command(epilog=examples("dlq admin node clear gpu07 --gpu 3", "dlq admin node clear gpu07"))
@click.option(
    "--gpu",
    "gpu_indexes",
    multiple=True,
    type=int,
    metavar="N",
    help="Only this GPU; may be repeated.",
)
@json_option
@_some_nodes
@pass_app
def clear(app: App, node_id: tuple[str, ...], gpu_indexes: tuple[int, ...], as_json: bool) -> None:
    """Use GPUs of NODE... again that were withheld for their health: all of them, or those named.

    A GPU that is still ill is withheld again with the node's next report; an old message of the
    driver does not count.
    """
    found = chosen_nodes(Nodes(app.connection()), node_id)
    admin = Admin(app.connection())
    _change(found, lambda name: admin.clear_gpu_conditions(name, gpu_indexes), as_json=as_json)


@node.command(
    epilog=examples("dlq admin node label gpu[01-04] rack=r1", "dlq admin node label gpu07 disk-")
)
@json_option
@click.argument("words", nargs=-1, required=True, metavar="NODE... K=V|K-...")
@pass_app
def label(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """Label NODE... with K=V, for jobs that ask for that (`dlq submit -C K=V`); `K-` takes one
    away.

    Jobs that run there go on with any labels. Jobs that wait for a label that no node has (any
    more) say so in `dlq why`.
    """
    names = [word for word in words if "=" not in word and not word.endswith("-")]
    try:
        labels = dict(read_node_label(word) for word in words if "=" in word)
        cleared = [check_word(word[:-1], "label") for word in words if word.endswith("-")]
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    if not names or not (labels or cleared):
        raise InvalidRequest("name nodes and their labels", hint="gpu[01-04] rack=r1")
    found = chosen_nodes(Nodes(app.connection()), names)
    admin = Admin(app.connection())
    changed = [
        admin.set_node_labels(one.node_id, set_labels=labels, clear_labels=cleared) for one in found
    ]
    lines = [f"node {one.node_id}: {labels_text(one) or 'no labels'}" for one in changed]
    tell({"nodes": [node_facts(one) for one in changed]}, lambda: "\n".join(lines), as_json=as_json)


@node.command(epilog=examples("dlq admin node accept gpu07"))
@json_option
@_some_nodes
@pass_app
def accept(app: App, node_id: tuple[str, ...], as_json: bool) -> None:
    """Use the GPUs that NODE... show beyond those they were accepted with.

    A node brings its GPUs along when it joins. GPUs that it shows later are withheld until an
    operator confirms them. A spare part of the same type needs no confirmation.
    """
    found = chosen_nodes(Nodes(app.connection()), node_id)
    _change(found, Admin(app.connection()).accept_gpus, as_json=as_json)


@node.command(epilog=examples("dlq admin node fence gpu07 --reason 'power is off' -y"))
@click.option("--reason", required=True, metavar="TEXT", help="How you know that it is dead.")
@yes_option
@json_option
@click.argument("node_id", metavar="NODE")
@pass_app
def fence(app: App, node_id: str, reason: str, yes: bool, as_json: bool) -> None:
    """Declare NODE dead: you have made sure that it runs nothing any more.

    Its attempts are lost now and their jobs are queued again. If the machine still runs, jobs run
    twice.
    """
    _must_operate(app)
    found = chosen_nodes(Nodes(app.connection()), [node_id])
    if len(found) != 1:
        raise InvalidRequest("fence one node at a time: each must be known to be off")
    lost = _attempts(found) or "no attempts"
    app.confirm(
        f"fencing {_names(found)} ({state_of(found[0])}) gives up {lost}; the machine must be off",
        yes=yes,
    )
    answer = Admin(app.connection()).fence_node(found[0].node_id, reason=reason)
    jobs = ", ".join(answer.job_ids) or "none"
    line = f"node {answer.node.node_id}: fenced; jobs that lost their attempt: {jobs}"
    facts = {"nodes": [node_facts(answer.node)], "job_ids": list(answer.job_ids)}
    tell(facts, lambda: line, as_json=as_json)


@node.command(epilog=examples("dlq admin node forget gpu07 -y"))
@yes_option
@_some_nodes
@pass_app
def forget(app: App, node_id: tuple[str, ...], yes: bool) -> None:
    """Forget NODE..., which are DOWN and hold nothing, and refuse their certificates."""
    names = names_of(node_id)
    app.confirm(f"forgetting {', '.join(names)} makes a new token necessary to return", yes=yes)
    admin = Admin(app.connection())
    for name in names:
        admin.forget_node(name)
        click.echo(f"node {name}: forgotten")


def _must_operate(app: App) -> None:
    """PermissionDenied before anything of other people's is shown; the master knows the role."""
    cluster = Queues(app.connection()).cluster()
    if cluster.role not in SEE_ALL:
        raise PermissionDenied(
            f"this is for operators, and {cluster.caller} is {cluster.role}",
            user=cluster.caller,
            needs="operator",
        )


def _set(
    app: App,
    found: Sequence[node_pb2.Node],
    flag: str,
    reason: str,
    *,
    as_json: bool,
    accept_loss: bool = False,
) -> None:
    first, *more = [one.node_id for one in found]
    answer = Admin(app.connection()).set_node_flags(
        first, set_flags=[flag], reason=reason, accept_loss=accept_loss, more=more
    )
    for loss in answer.losses:
        app.say(f"{loss.detail} is lost")
    _tell_nodes((answer.node, *answer.more_nodes), as_json=as_json)


def _losses(app: App, found: Sequence[node_pb2.Node]) -> list[str]:
    """The losses of jobs in a drain of these nodes."""
    job_ids = sorted({key.partition(".")[0] for one in found for key in one.attempts}, key=int)
    jobs = Jobs(app.connection()).list(job_ids=job_ids).jobs
    losses = [job.stop_loss for job in jobs if job.HasField("stop_loss") and not job.stop_cause]
    return [f"{clean_line(loss.detail)} would be lost" for loss in losses]


def _change(
    found: Sequence[node_pb2.Node],
    change: Callable[[str], node_pb2.Node],
    *,
    as_json: bool,
) -> None:
    _tell_nodes([change(one.node_id) for one in found], as_json=as_json)


def _tell_nodes(changed: Sequence[node_pb2.Node], *, as_json: bool) -> None:
    lines = [
        f"node {one.node_id}: {state_of(one)}, {', '.join(one.flags) or 'no flags'}"
        for one in changed
    ]
    tell({"nodes": [node_facts(one) for one in changed]}, lambda: "\n".join(lines), as_json=as_json)


def _attempts(found: Sequence[node_pb2.Node]) -> str:
    keys = sorted({key for one in found for key in one.attempts})
    if not keys:
        return ""
    return f"{len(keys)} attempt{'s' if len(keys) > 1 else ''} ({', '.join(keys[:10])})"


def _names(found: Sequence[node_pb2.Node]) -> str:
    return ", ".join(one.node_id for one in found)
