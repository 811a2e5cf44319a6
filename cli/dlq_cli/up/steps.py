"""The steps of `dlq up`, in order. Each looks first whether it is done."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlq_cli.doctor.host import HostWish
from dlq_cli.doctor.nvidia import nvml
from dlq_cli.doctor.verdict import ClientHealth
from dlq_cli.settings import FILE, change_file
from dlq_cli.up import asking, making, units
from dlq_cli.up.looking import isolation, page_address
from dlq_cli.up.place import (
    Box,
    check_state,
    host_word,
    make_state,
    name_for,
    refuse_other_cluster,
    state_for,
)
from dlq_cli.up.processes import AGENT, MASTER, PAGE, jobs_here, keeper_lives, missing
from dlq_common.errors import ConfigError, InvalidRequest, TryAgain
from dlq_common.text.addresses import is_loopback

if TYPE_CHECKING:
    from dlq_cli.app import App

_SHORT_FAKE = re.compile(r"fake:([1-9][0-9]?)\Z")
# As the agent reads it: a box with another word would be made, and its agent would never run.
_DEVICES = re.compile(
    r"none|fake:[1-9][0-9]?x[A-Za-z][A-Za-z0-9]{0,15}-[1-9][0-9]{0,3}GB(\+(busy|idle))?(@/[^\n]+)?"
)


def devices_of(word: str | None) -> str:
    """The agent's word for the devices. ConfigError when real ones are wished and missing."""
    if word is not None and word != "nvml":
        short = _SHORT_FAKE.match(word)
        full = f"fake:{short[1]}xH100-80GB+busy" if short else word
        if not _DEVICES.fullmatch(full):
            raise InvalidRequest(
                f"--devices: {word!r} names none",
                hint="write nvml, none, fake:2 or fake:8xH100-80GB",
            )
        return full
    verdict = nvml(HostWish(devices="nvml"))
    if verdict.health is not ClientHealth.OK:
        raise ConfigError(
            f"no GPU can be used here: {verdict.found}",
            hint="`dlq up --devices fake:2` pretends two GPUs, `--devices none` runs jobs without",
        )
    if word is None and (uid := making.gpus_of_another()) not in (None, os.geteuid()):
        raise ConfigError(
            f"the user with uid {uid} manages the GPUs of this machine by `dlq up`",
            hint="two clusters would give the same GPU twice; `--devices nvml` takes them anyway",
        )
    return "nvml"


def new_box(
    app: App, devices: str, directory: Path | None, port: int | None, node: str, *, joined: bool
) -> Box:
    """The decisions of a new box; only its empty directories are made."""
    making.check_parts(*((AGENT,) if joined else (MASTER, AGENT)))
    making.check_account()
    refuse_other_cluster(app.home, app.settings)
    name = name_for(app.home, os.environ)
    state = (directory or state_for(name, os.environ)).absolute()
    check_state(state, Path("/proc/self/mounts").read_text())
    make_state(state, app.home.absolute())
    box = Box(
        home=app.home.absolute(), name=name, state=state, machine=platform.node(), node=node,
        cluster="" if joined else f"{name}-{host_word()}", devices=devices, joined=joined,
    )  # fmt: skip
    return box if joined else _at_ports(box, port)


def changed(
    app: App, box: Box, devices: str | None, port: int | None, directory: Path | None
) -> Box:
    """A box that exists, with the wishes that can be met later."""
    if directory is not None and directory.absolute() != box.state:
        raise InvalidRequest(f"the files of this box are in {box.state}, and stay there")
    if not box.joined:
        refuse_other_cluster(app.home, app.settings, box.cluster)
    if devices is not None and (wished := devices_of(devices)) != box.devices:
        if jobs_here(box):
            raise InvalidRequest("jobs run on the present devices", hint="dlq down, then dlq up")
        box = replace(box, devices=wished)
    if port is not None and not box.joined and asking.port_of(box.api) != port:
        box = _at_ports(box, port)
    return box


def with_cores(box: Box, cores: int) -> Box:
    """The same box with so many cores for jobs without GPUs. InvalidRequest for too many."""
    here = len(os.sched_getaffinity(0))
    most = here if box.devices == "none" else here - 1
    if cores > most:
        rest = "" if most == here else ", as jobs with GPUs need one"
        raise InvalidRequest(f"--cores: {cores} of {here} cores are too many{rest}; {most} at most")
    return replace(box, cores=cores)


def start(app: App, box: Box, *, at_login: bool | None) -> None:
    """Bring up all parts of a first box. `at_login`: start it by systemd, or no more; None: as
    before.
    """
    make_state(box.state, box.home)
    making.check_ports(box)
    making.follow_record(box)
    making.found(box)
    making.configure_agent(box)
    _keep(app, box, at_login)
    making.wait_for_part(box, MASTER, lambda: asking.logged_in(app, box))
    change_file(app.home / FILE, "login_socket", str(box.login_socket))
    first = not box.has_node
    if first:
        address = f"127.0.0.1:{asking.port_of(box.join)}"
        making.join(box, asking.new_token(app, box.node), address)
    making.wait_for_part(box, AGENT, lambda: asking.node_is_up(app, box))
    if fault := _page_fault(box):
        app.say(f"there is no page: {fault}")
    if first:
        _tell_isolation(app, box)


def join(app: App, box: Box, address: str, token: str, *, at_login: bool | None) -> None:
    """Make this machine a node of another one's cluster."""
    if not box.joined:
        raise InvalidRequest(
            "this machine has a cluster of its own", hint="`dlq --home DIR up --join` makes a node"
        )
    _check_address(address)
    box.save()
    first = not box.has_node
    if first:
        making.configure_agent(box)
        making.join(box, token, address)
    start_joined(app, box, at_login=at_login)
    if first:
        _tell_isolation(app, box)
        app.say("`dlq nodes` on the first machine shows this one; jobs are submitted there")


def start_joined(app: App, box: Box, *, at_login: bool | None) -> None:
    """Bring up the agent of a machine that has joined."""
    if not box.has_node:
        raise ConfigError("this machine has not joined yet", hint="dlq up --join HOST:PORT")
    making.follow_record(box)
    _keep(app, box, at_login)
    making.wait_for_part(box, AGENT, lambda: asking.was_welcomed(box))


def invite(app: App, box: Box, address: str | None) -> tuple[str, Box]:
    """The command for another machine, and the box, whose master listens on all networks now."""
    if box.joined:
        raise InvalidRequest("only the first machine of a cluster invites others")
    reached = address or box.address or making.own_address()
    opened = making.opened(box, reached)
    if opened != box:
        making.follow_record(opened)
        ports = f"{asking.port_of(box.api)} and {asking.port_of(box.join)}"
        app.say(f"the master listens on all networks from now on, at the ports {ports}, over TLS")
    making.wait_for_part(opened, MASTER, lambda: asking.listens(opened))
    secret = asking.new_token(app, "")
    # The shell's own echo: no list of processes shows the token, also not on the other machine.
    command = f"echo {secret} | dlq up --join {reached}:{asking.port_of(opened.join)} --token -"
    return command, opened


def _page_fault(box: Box) -> str:
    """Wait for the page; the words of its failure, which stops nothing else."""
    if name := missing(PAGE):
        return f"{name} is not installed (pip install 'dlq[web]')"
    try:
        making.wait_for_part(box, PAGE, lambda: page_address(box) is not None)
    except (ConfigError, TryAgain) as error:
        return error.what
    return ""


def _keep(app: App, box: Box, at_login: bool | None) -> None:
    """See that a keeper lives, by systemd where the box starts at login."""
    installed = units.is_installed(box, os.environ)
    if at_login and not units.is_current(box, os.environ):
        units.install(box, os.environ)
        if not installed:
            making.stop_keeper(box)  # systemd runs the next one
        installed = True
    elif at_login is False and installed:
        units.remove(box, os.environ)
        installed = False
    if at_login is not None:
        app.say(units.login_words(at_login=at_login))
    if installed and not keeper_lives(box):
        units.start(box)
        unit = units.unit_of(box)
        making.wait_for_keeper(box, lambda: f"`journalctl --user -u {unit}` tells why")
    making.start_keeper(box)


def _at_ports(box: Box, port: int | None) -> Box:
    api, join_port = making.free_ports(port)
    host = box.api.rpartition(":")[0] or "127.0.0.1"
    return replace(box, api=f"{host}:{api}", join=f"{host}:{join_port}")


def _tell_isolation(app: App, box: Box) -> None:
    for line in isolation(box):
        app.say(line)


def _check_address(address: str) -> None:
    """Before the token is used, which is good once."""
    try:
        here = is_loopback(address)
    except ValueError as error:
        raise InvalidRequest(f"--join: {error}") from None
    if os.geteuid() == 0 and not here:
        raise ConfigError(
            "root cannot join another machine by `dlq up`: its jobs would run as root here",
            hint="run it as a user without root; deploy/install.sh makes a node for several users",
        )
