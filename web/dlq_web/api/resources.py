"""The one table of the reads below `/v1`: path, method of the master, parameters, and the facts.

The facts are the documents of the command line: `/v1/jobs/17/why` has what `dlq why 17 --json` has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dlq.v1 import admin_service_pb2, job_service_pb2
from dlq_cli.commands.here.version import client_version
from dlq_cli.facts.answers import explained_facts, promises_facts, whole_job_facts
from dlq_cli.facts.cluster import (
    audit_facts,
    cluster_facts,
    decided_facts,
    event_facts,
    node_facts,
    pools_facts,
    quality_facts,
    queue_facts,
    reservation_facts,
    server_facts,
    teams_facts,
    user_facts,
)
from dlq_cli.facts.common import Facts, instant
from dlq_cli.facts.gpus import gpu_facts, rows_of
from dlq_cli.facts.job import job_facts
from dlq_cli.facts.usage import report_facts
from dlq_web.api.lists import JOB_LIST, NODE_LIST, total_of
from dlq_web.api.params import MOST_AT_ONCE, PAGE, Param, instant_at, text
from dlq_web.line.methods import PublicMethod, named

RECENT_S = 24 * 3600


class Resource(NamedTuple):
    """A read: the method of the master, its parameters, and the facts of the answer."""

    path: str  # below /v1; {name} is a parameter of the path
    summary: str
    method: PublicMethod
    facts: Callable[[Any], Facts]
    params: Sequence[Param] = ()
    items: str = ""  # the key of its list, if it is one
    usual: Callable[[Any], None] = lambda request: None  # what nobody has to say


def _jobs(answer: job_service_pb2.ListJobsResponse) -> Facts:
    return {
        "jobs": [job_facts(job) for job in answer.jobs],
        "total": total_of(answer),
        "next_cursor": answer.next_page_token or None,
        "event_cursor": answer.cursor,
    }


def _events(answer: job_service_pb2.ListEventsResponse) -> Facts:
    return {
        "events": [event_facts(event) for event in answer.events],
        "next_cursor": answer.next_page_token or None,
        "event_cursor": answer.cursor,
    }


def _audit(answer: admin_service_pb2.ListAuditLinesResponse) -> Facts:
    looked = answer.HasField("looked_from_time")
    return {
        "lines": [audit_facts(line) for line in answer.lines],
        "next_cursor": answer.next_page_token or None,
        "looked_from_time": instant(answer.looked_from_time) if looked else None,
    }


def _recent(request: job_service_pb2.ListJobsRequest) -> None:
    _counted(request)
    request.ended_within_seconds = RECENT_S


def _counted(request: Any) -> None:
    request.page_size = MOST_AT_ONCE
    request.with_total = True


def _paged(request: Any) -> None:
    request.page_size = MOST_AT_ONCE


def _by_user_and_team(request: Any) -> None:
    request.by.extend(("user", "team"))


_JOB = text("job", "job_id", "The number of a job, or of a task such as 12_4.")
_USAGE_GROUPS = ("user", "team")

RESOURCES: tuple[Resource, ...] = (
    Resource(
        "/jobs",
        "Jobs by number or in another order; yours, and of the ended ones the last day's.",
        named("JobService", "ListJobs"),
        _jobs,
        JOB_LIST,
        items="jobs",
        usual=_recent,
    ),
    Resource(
        "/jobs/{job}",
        "Everything about a job.",
        named("JobService", "GetJob"),
        lambda answer: {"job": whole_job_facts(answer)},
        (_JOB,),
    ),
    Resource(
        "/jobs/{job}/why",
        "Every reason why a job does not run, and how its waiting came about.",
        named("JobService", "ExplainJob"),
        lambda answer: {"job": explained_facts(answer)},
        (_JOB,),
    ),
    Resource(
        "/jobs/{job}/events",
        "The events of a job, oldest first.",
        named("JobService", "ListEvents"),
        _events,
        (_JOB, *PAGE),
        items="events",
        usual=_paged,
    ),
    Resource(
        "/nodes",
        "The machines, with their GPUs.",
        named("NodeService", "ListNodes"),
        lambda answer: {
            "nodes": [node_facts(node) for node in answer.nodes],
            "total": total_of(answer),
            "next_cursor": answer.next_page_token or None,
        },
        NODE_LIST,
        items="nodes",
        usual=_counted,
    ),
    Resource(
        "/nodes/{node}",
        "One machine.",
        named("NodeService", "GetNode"),
        lambda answer: {"node": node_facts(answer.node)},
        (text("node", "node_id", "Its name."),),
    ),
    Resource(
        "/gpus",
        "Every GPU: its job, its health, its last measurements.",
        named("NodeService", "ListNodes"),
        lambda answer: {
            "gpus": [gpu_facts(row) for row in rows_of(answer.nodes)],
            "next_cursor": answer.next_page_token or None,
        },
        NODE_LIST,
        items="gpus",
        usual=_counted,
    ),
    Resource(
        "/queues",
        "The queues, the first to be served first.",
        named("QueueService", "ListQueues"),
        lambda answer: {"queues": [queue_facts(queue) for queue in answer.queues]},
        items="queues",
    ),
    Resource(
        "/cluster",
        "The cluster as a whole, and your name and role in it.",
        named("QueueService", "GetCluster"),
        lambda answer: {"cluster": cluster_facts(answer)},
    ),
    Resource(
        "/teams",
        "Your teams: their limits and their use.",
        named("TeamService", "ListTeams"),
        teams_facts,
    ),
    Resource(
        "/promises",
        "Jobs with deadlines that have not ended, those in danger, and the record by team.",
        named("PromiseService", "ListPromises"),
        promises_facts,
        PAGE,
        items="jobs",
        usual=_paged,
    ),
    Resource(
        "/reservations",
        "Nodes that are kept free for maintenance, the first to begin first.",
        named("ReservationService", "ListReservations"),
        lambda answer: {"reservations": [reservation_facts(one) for one in answer.reservations]},
        items="reservations",
    ),
    Resource(
        "/forecast",
        "How good start ranges have been, and the last look of the twin.",
        named("ForecastService", "GetForecastQuality"),
        quality_facts,
    ),
    Resource(
        "/version",
        "The versions of this server and of the master.",
        named("QueueService", "GetCluster"),
        lambda answer: {
            "api": "v1",
            "server_version": client_version(),
            "master_version": answer.master_version,
        },
    ),
    Resource(
        "/usage",
        "GPU-hours by user and team.",
        named("UsageService", "GetUsage"),
        lambda answer: report_facts(answer, _USAGE_GROUPS),
        (
            text("user", "user", "Only jobs of this user."),
            text("team", "team", "Only jobs counted to this team."),
        ),
        usual=_by_user_and_team,
    ),
    Resource(
        "/loans",
        "Servers of the inference side, lent or not. For operators.",
        named("LoanService", "ListLoans"),
        lambda answer: {"servers": [server_facts(one) for one in answer.servers]},
        items="servers",
    ),
    Resource(
        "/rented",
        "Pools of rented machines and their costs. For operators.",
        named("PoolService", "ListPools"),
        pools_facts,
    ),
    Resource(
        "/users",
        "The users of the cluster. For operators.",
        named("AdminService", "ListUsers"),
        lambda answer: {"users": [user_facts(one) for one in answer.users]},
        items="users",
    ),
    Resource(
        "/audit",
        "Calls that changed something or were denied, the newest first. For operators.",
        named("AdminService", "ListAuditLines"),
        _audit,
        (
            text("user", "user", "Only calls of this user, node or service."),
            text("method", "method", "Only methods with this part in their path."),
            text("object", "object", "Only calls about this job, node, user or other thing."),
            text("decision", "decision", "Only this decision, such as PERMISSION_DENIED."),
            text("q", "text", "Words: each is somewhere in the line."),
            instant_at("from", "from_time", "Only lines since then."),
            instant_at("until", "until_time", "Only lines before then."),
            *PAGE,
        ),
        items="lines",
    ),
    Resource(
        "/policy",
        "The policy that decides, and the state of its helpers. For operators.",
        named("AdminService", "GetPolicy"),
        decided_facts,
    ),
)
