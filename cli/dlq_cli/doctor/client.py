"""The client's side: this program, its settings, the identity, the way to the master, clocks,
completion.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from dlq_cli.doctor.verdict import CheckVerdict, ClientHealth, fail, ok, skip, warn
from dlq_cli.output.render import OutputLook, clean_line
from dlq_cli.quiet import quiet_grpc
from dlq_cli.settings import KEYS, ClientSettings
from dlq_cli.text import helpers as helper_text
from dlq_common.clock import Clock
from dlq_common.errors import DlqError
from dlq_common.text.addresses import split_address
from dlq_common.text.instants import format_instant
from dlq_common.text.units import format_span

if TYPE_CHECKING:
    from dlq.v1 import queue_service_pb2
    from dlq_client.line.identity import Identity

# One try each; a doctor does not wait for a master that restarts.
DIAL_S = 5.0
LOOKED_BACK_S = 86_400
CLOCKS_APART_S = 5.0
# Certificates renew themselves at two thirds of their life; one this near its end did not.
EXPIRES_SOON_S = 3 * 86_400.0


def program(which: Callable[[str], str | None]) -> CheckVerdict:
    """The installed program, and whether the shell finds it."""
    found = f"dlq {metadata.version('dlq')}, Python {platform.python_version()}"
    path = which("dlq")
    if path is None:
        return warn(
            "program", f"{found}; no `dlq` in PATH", "add the directory of this `dlq` to PATH"
        )
    return ok("program", f"{found}, {path}")


def settings(values: ClientSettings) -> CheckVerdict:
    """The client's settings can be read."""
    try:
        origins = {name: values.get(name).origin for name in KEYS}
    except DlqError as error:
        return fail("settings", error.what, error.hint or "dlq config shows them")
    changed = [name for name, origin in origins.items() if origin != "default"]
    return ok(
        "settings", f"{', '.join(changed)} not as by default" if changed else "all by default"
    )


def credentials(home: Path, broker: Path, now_s: float) -> tuple[CheckVerdict, Identity | None]:
    """The identity, if it is one that the master would take."""
    from dlq_client.line.identity import load_identity

    there = os.path.exists(broker)
    todo = "dlq login" if there else "run `dlq login` on the master's host, or name --home DIR"
    try:
        identity = load_identity(home)
    except DlqError as error:
        return fail("credentials", error.what, error.hint or todo), None
    if identity is None:
        told = warn if there else fail
        return told("credentials", f"nobody is logged in: {home} holds no identity", todo), None
    who = f"{identity.user} ({identity.role}) of {identity.cluster}"
    until = format_instant(identity.expires_s)
    if not identity.is_valid(now_s):
        told = warn if there else fail
        return told("credentials", f"{who}: the certificate ended at {until}", todo), None
    left = f"{who}, certificate until {until}"
    if identity.expires_s - now_s < EXPIRES_SOON_S and identity.renewal_due(now_s):
        return warn("credentials", left, "dlq version renews it, if the master answers"), identity
    return ok("credentials", left), identity


def reach(identity: Identity) -> CheckVerdict:
    """Whether something listens at the master's address, or at one of several."""
    *others, last = identity.address.split(",")
    found = (_reach(address.strip()) for address in others)
    return next((it for it in found if it.health is ClientHealth.OK), None) or _reach(last.strip())


def _reach(address: str) -> CheckVerdict:
    try:
        host, port = split_address(address)
        began_s = time.perf_counter()
        socket.create_connection((host, port), timeout=DIAL_S).close()
    except socket.gaierror as error:
        return fail(
            "network",
            f"{address}: the name does not resolve ({error.strerror})",
            "look at /etc/hosts and DNS; `dlq login` brings the master's present address",
        )
    except ConnectionRefusedError:
        return fail("network", f"{address}: nothing listens there",
                    "on the master's host: systemctl status dlq-master")  # fmt: skip
    except (TimeoutError, OSError, ValueError) as error:
        return fail("network", f"{address}: no connection in {DIAL_S:g} s ({error})",
                    "look at routes and firewalls: the API port must be open")  # fmt: skip
    return ok("network", f"{address} in {1e3 * (time.perf_counter() - began_s):.0f} ms")


def master(
    identity: Identity, clock: Clock
) -> tuple[CheckVerdict, queue_service_pb2.GetClusterResponse | None, float]:
    """Whether the master takes us; its answer, and our time in the middle of the question."""
    with quiet_grpc():
        from dlq_client.line.connection import Connection
        from dlq_client.queues import Queues

    asked_s = clock.now_s()
    try:
        with Connection(identity, clock=clock, patience_s=0.0, deadline_s=DIAL_S) as connection:
            answer = Queues(connection).cluster()
    except DlqError as error:
        todo = error.hint or "dlq login, if the cluster was made anew; else ask its operator"
        return fail("master", error.what, todo), None, asked_s
    middle_s = (asked_s + clock.now_s()) / 2
    state = f", frozen: {answer.freeze_reason}" if answer.freeze_reason else ""
    found = f"{answer.cluster_name}, {answer.gpu_count} GPUs ({answer.free_gpu_count} free){state}"
    return ok("master", found), answer, middle_s


def versions(answer: queue_service_pb2.GetClusterResponse) -> CheckVerdict:
    """Whether both ends are of one version."""
    ours, theirs = metadata.version("dlq"), answer.master_version
    if ours == theirs:
        return ok("versions", f"{ours} on both ends")
    return warn("versions", f"dlq {ours} here, {theirs} at the master",
                f"pip install dlq=={theirs}, or upgrade the master")  # fmt: skip


def helpers(
    answer: queue_service_pb2.GetClusterResponse, look: OutputLook
) -> Iterator[CheckVerdict]:
    """Whether the master gets answers from its planner and its twin, and plans from its policy."""
    told = fail if answer.role in ("operator", "admin") else warn
    for helper in answer.helpers:
        if helper.failing:
            yield told(helper.name, helper_text.failing(helper, look), helper_text.todo(helper))
    if answer.helpers and not any(helper.failing for helper in answer.helpers):
        yield ok("helpers", f"{', '.join(helper.name for helper in answer.helpers)} do well")


def incidents(answer: queue_service_pb2.GetClusterResponse, now_s: float) -> Iterator[CheckVerdict]:
    """The master's failures within a day; only operators see them."""
    for one in answer.incidents:
        ago_s = now_s - one.failure_time.seconds
        if ago_s > LOOKED_BACK_S:
            continue
        yield fail(
            "incident",
            f"the master failed on {one.kind} of {one.sender or 'its clock'} "
            f"{format_span(round(max(0.0, ago_s)))} ago ({clean_line(one.error)})",
            f"read incidents/{one.incident_id}.json in the master's state directory and report it. "
            f"A master with the fault refuses it for up to an hour at a time",
        )


def clocks(answer: queue_service_pb2.GetClusterResponse, middle_s: float) -> CheckVerdict:
    """How far the two clocks are apart. No decision uses our clock; it only shows times."""
    if not answer.HasField("master_time"):
        return skip("clock", "the master does not tell its time")
    apart_s = middle_s - (answer.master_time.seconds + answer.master_time.nanos / 1e9)
    if abs(apart_s) <= CLOCKS_APART_S:
        return ok("clock", f"{abs(apart_s):.1f} s apart from the master's")
    side = "ahead of" if apart_s > 0 else "behind"
    return warn(
        "clock",
        f"{format_span(round(abs(apart_s)))} {side} the master's",
        "ages and --since are off by that much: let chrony or systemd-timesyncd set it",
    )


_RC = {"bash": (".bashrc", ".bash_profile", ".profile"), "zsh": (".zshrc",), "fish": ()}
_FILES = {
    "bash": (
        ".local/share/bash-completion/completions/dlq",
        "/etc/bash_completion.d/dlq",
        "/usr/share/bash-completion/completions/dlq",
    ),
    "zsh": (".zfunc/_dlq", "/usr/share/zsh/site-functions/_dlq"),
    "fish": (".config/fish/completions/dlq.fish",),
}
_TEACH = {
    "bash": "echo 'eval \"$(dlq completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(dlq completion zsh)\"' >> ~/.zshrc",
    "fish": "dlq completion fish > ~/.config/fish/completions/dlq.fish",
}


def completion(environ: Mapping[str, str], user_home: Path) -> CheckVerdict:
    """Whether the login shell has been taught our commands."""
    shell = Path(environ.get("SHELL", "")).name
    if shell not in _RC:
        return skip("completion", f"no scripts for {shell or 'an unknown shell'}")
    for name in _FILES[shell]:
        if os.path.exists(user_home / name):
            return ok("completion", f"{shell}, by {user_home / name}")
    for name in _RC[shell]:
        try:
            text = (user_home / name).read_text("utf-8", "replace")
        except OSError:
            continue
        if "dlq completion" in text or "_DLQ_COMPLETE" in text:
            return ok("completion", f"{shell}, by {user_home / name}")
    return warn("completion", f"{shell} does not complete dlq's commands", _TEACH[shell])
