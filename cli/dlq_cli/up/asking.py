"""Questions to a box while it starts and ends: to its master, its node, its jobs and its page."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dlq_cli.output.progress import ProgressBar
from dlq_cli.output.render import age
from dlq_cli.quiet import quiet_grpc
from dlq_cli.up.place import Box
from dlq_cli.up.processes import (
    AGENT,
    MASTER,
    PAGE,
    jobs_here,
    keeper_lives,
    read_running,
    wait_for,
)
from dlq_common.errors import ConfigError, DlqError, TryAgain, Unavailable
from dlq_common.text.addresses import split_address

if TYPE_CHECKING:
    from dlq.v1.job_pb2 import Job
    from dlq_cli.app import App

FORCED_S = 30.0  # at most, for jobs that save before `dlq down --force` kills them
LATE_S = 60.0  # a job that has just begun gets its notice later
KILLED_S = 30.0  # for the end of processes that were killed
LINK_S = 10.0
_WAITING = frozenset({"pending", "queued", "held"})
_LINK = re.compile(rb"open (http://\S+)")


def logged_in(app: App, box: Box) -> bool:
    """Log in, where the master of the present keeper answers."""
    from dlq_cli.sign_in import log_in

    if not part_lives(box, MASTER):
        return False
    try:
        log_in(app.home, box.login_socket)
    except Unavailable:  # it is being started anew
        return False
    return True


def part_lives(box: Box, part: str) -> bool:
    """Whether the present keeper has this part: a former one's is about to end."""
    running = read_running(box)
    return (
        running is not None
        and running.keeper.lives()
        and part in running.parts
        and running.parts[part].lives()
    )


def listens(box: Box) -> bool:
    """Whether the join port of the master is open at the address for other machines."""
    with suppress(OSError), socket.create_connection((box.address, port_of(box.join)), timeout=2):
        return True
    return False


def port_of(address: str) -> int:
    return split_address(address)[1]


def new_token(app: App, node: str) -> str:
    """A join token, good once and for an hour."""
    with quiet_grpc():
        from dlq_client.admin import Admin
    return Admin(app.connection()).create_token(node_id=node).secret


def node_is_up(app: App, box: Box) -> bool:
    """Whether the master hears this machine's agent, as the record wants it."""
    with quiet_grpc():
        from dlq.v1.node_pb2 import NODE_STATE_UP
        from dlq_client.nodes import Nodes
    if not part_lives(box, AGENT):
        return False
    with suppress(DlqError):
        node = Nodes(app.connection()).get(box.node)
        return node.state == NODE_STATE_UP and box.cores in (None, node.job_core_count)
    return False


def was_welcomed(box: Box) -> bool:
    """Whether the present agent's line to its master stands, by the agent's own log."""
    welcomed = False
    with suppress(OSError):
        for line in box.log(AGENT).read_bytes().splitlines():
            with suppress(ValueError):
                event = json.loads(line).get("event")
                welcomed = event == "welcomed" or (welcomed and event != "agent_started")
    return welcomed and part_lives(box, AGENT)


def running_jobs(app: App, box: Box) -> Sequence[Job] | None:
    """The jobs that hold something; None when the master cannot say it."""
    if box.joined or not keeper_lives(box):
        return None
    with quiet_grpc():
        from dlq_cli.words import ENDED, shown_state
        from dlq_client.jobs import Jobs
    try:
        jobs = Jobs(app.connection()).list(user="*").jobs
    except DlqError:
        return None
    return [job for job in jobs if shown_state(job) not in _WAITING | ENDED]


def impact_of(box: Box, jobs: Sequence[Job] | None) -> str:
    """The words for jobs that an end of the box would meet; "" when none runs."""
    if jobs:
        return (
            f"{'1 job runs' if len(jobs) == 1 else f'{len(jobs)} jobs run'} ({_named(jobs)}): "
            f"cancel, with {age(grace_s(jobs))} to save, then end dlq"
        )
    if jobs_here(box):
        why = "only the first machine can" if box.joined else "the master does not answer to"
        return f"jobs run here, and go on without dlq for an hour at most: {why} cancel them"
    return ""


def grace_s(jobs: Sequence[Job], *, force: bool = False) -> float:
    """How long these jobs may save: the longest of their own times, cut short by `force`."""
    own_s = max(job.grace_duration.ToTimedelta().total_seconds() for job in jobs)
    return min(own_s, FORCED_S) if force else own_s


def end_jobs(app: App, box: Box, jobs: Sequence[Job], *, force: bool) -> None:
    """Cancel them, kill what is there after their grace, and wait until their processes here are
    gone. TryAgain when some stay even so.

    A job on a machine that is away cannot be waited for: it ends there when its hold is over.
    """
    from dlq_client.jobs import Jobs

    patience_s = grace_s(jobs, force=force)
    one = len(jobs) == 1
    app.say(
        f"{'job' if one else 'jobs'} {_named(jobs)}: cancelled, with up to {age(patience_s)} to "
        f"save and end; then {'it is' if one else 'they are'} killed"
    )
    asked = Jobs(app.connection())
    asked.cancel_many([job.job_id for job in jobs])
    if _gone_within(app, box, patience_s + (0.0 if force else LATE_S), "jobs end"):
        return
    left = running_jobs(app, box) or ()
    app.say(f"not ended, so killed: {_named(left)}; work since the last save is lost")
    asked.cancel_many([job.job_id for job in left], kill=True)
    if not _gone_within(app, box, KILLED_S, "killed jobs end"):
        raise TryAgain(
            "some jobs do not end, though they were killed",
            hint="`dlq down --leave-jobs` ends the rest",
        )


def _gone_within(app: App, box: Box, patience_s: float, what: str) -> bool:
    """Wait until no job runs here; False when the time is over."""
    began_s = time.monotonic()

    def gone() -> bool:
        bar.at(time.monotonic() - began_s)
        return not running_jobs(app, box) or _all_away(app, box)

    with ProgressBar(what, patience_s) as bar:
        return wait_for(gone, patience_s)


def _named(jobs: Sequence[Job]) -> str:
    return ", ".join(job.job_id for job in jobs[:8]) + (", ..." if len(jobs) > 8 else "")


def _all_away(app: App, box: Box) -> bool:
    """Whether the jobs that are left are on silent machines, and none is here."""
    with quiet_grpc():
        from dlq_cli.words import shown_state
    left = running_jobs(app, box)
    return (
        left is not None
        and {shown_state(job) for job in left} <= {"unknown"}
        and not (jobs_here(box))
    )


def new_page_link(box: Box) -> str:
    """A link that signs a browser in once. The page prints one for each signal."""
    running = read_running(box)
    if running is None or not part_lives(box, PAGE):
        raise ConfigError(
            "the page does not run", hint=f"pip install 'dlq[web]'; its log: {box.log(PAGE)}"
        )
    log = box.log(PAGE)
    before = _links(log)
    end_s = time.monotonic() + LINK_S
    running.parts[PAGE].send(signal.SIGUSR1)
    while len(found := _links(log)) <= len(before):
        if time.monotonic() > end_s:
            raise TryAgain("the page gave no link", hint=f"see {log}")
        time.sleep(0.05)
    return found[-1]


def _links(log: Path) -> list[str]:
    with suppress(OSError):
        return [each.decode() for each in _LINK.findall(log.read_bytes())]
    return []
