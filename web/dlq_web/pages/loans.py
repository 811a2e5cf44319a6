"""Servers that the inference side lends, the price of taking them back, and rented machines.

The master decides who may see and do this. A part that is not for the person says so in words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import loan_service_pb2, node_pb2, node_service_pb2, pool_service_pb2, usage_service_pb2
from dlq_cli.commands.cluster.nodes import names_of
from dlq_cli.commands.report.usage import groups_of
from dlq_cli.facts.gpus import rows_of
from dlq_cli.facts.usage import COST_GROUPS, cost_facts, pool_cost_facts
from dlq_cli.output.render import OutputLook, clean_line, when
from dlq_cli.patience import duration_s
from dlq_cli.text import loans as words
from dlq_cli.text import pools as rented
from dlq_client.loans import PATIENCE_S
from dlq_common.clock import Clock
from dlq_common.errors import DlqError, InvalidRequest, NotFound, PermissionDenied
from dlq_common.text.units import DAY
from dlq_common.text.wire import from_timestamp, to_duration, to_timestamp
from dlq_web.door.sessions import line_of
from dlq_web.line.calls import Asking
from dlq_web.line.methods import PublicMethod, named
from dlq_web.pages.page import page
from dlq_web.pages.sheets import Sheet, facts_sheet, sheet
from dlq_web.pages.views import REPORTED_DAYS, days_of, look_at

MOST_ROWS = 200
MOST_MACHINES = 50  # of a pool, the newest first
MOST_PROOFS = 32  # servers whose GPUs are shown one by one
_FIELDS = ("count", "hosts", "within", "force")
_MOVING = ("lending", "reclaimed")
_STATES = ("reclaimed", "lending", "lent", "away")  # in the order in which they are shown
_PLACES = {state: place for place, state in enumerate(_STATES)}
_LIST, _PLAN = named("LoanService", "ListLoans"), named("LoanService", "PlanReclaim")
_POOLS, _COSTS = named("PoolService", "ListPools"), named("UsageService", "GetCosts")
_NODE = named("NodeService", "GetNode")


class AskedBack(NamedTuple):
    """The servers that would be taken back, as the form says it."""

    number: str = ""
    hosts: str = ""
    within: str = ""
    force: str = ""


class EmptyProof(NamedTuple):
    """A server on its way, and each of its GPUs in words."""

    node_id: str
    state: str
    gpus: Sequence[str]


class ShownPlan(NamedTuple):
    """The price of taking servers back, or why there is none."""

    pairs: Sequence[tuple[str, str]] = ()
    jobs: Sheet | None = None
    refused: str = ""
    hint: str = ""
    command: str = ""
    request: Mapping[str, Any] = {}  # for ReclaimServers: its token with all arguments
    names: str = ""


def routes(clock: Clock) -> list[Route]:
    """The page."""
    return [Route("/loans", LoansPage(clock).show, methods=["GET"])]


class LoansPage:
    """The page, by the time of one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def show(self, http: Request) -> Response:
        """Loans, what taking them back costs, pools, and money."""
        line, look = line_of(http), look_at(self._clock.now_s())
        asked = AskedBack(*(http.query_params.get(name, "").strip() for name in _FIELDS))
        days = days_of(http)
        by = groups_of(http.query_params.get("by", "pool"), COST_GROUPS)
        since = to_timestamp(look.now_s - days * DAY)
        costs_asked = usage_service_pb2.GetCostsRequest(from_time=since, by=by)
        lent, plan, pools, costs = await asyncio.gather(
            _for_operators(line, _LIST, loan_service_pb2.ListLoansRequest()),
            _planned(line, asked, look),
            _for_operators(line, _POOLS, pool_service_pb2.ListPoolsRequest()),
            line.call(_COSTS, costs_asked),
        )
        return page(
            http, "loans", "Loans", after=-1, look=look, asked=asked, plan=plan,
            lent=await _lent(line, lent, look), pools=_rented(pools, look),
            costs=facts_sheet([cost_facts(one, by) for one in costs.costs], (*COST_GROUPS, "name"),
                              MOST_ROWS),
            pool_costs=facts_sheet([pool_cost_facts(one, by) for one in costs.pools],
                                   ("day", "pool")),
            days=days, by=",".join(by), all_days=REPORTED_DAYS, groups=tuple(COST_GROUPS),
        )  # fmt: skip


async def _for_operators(line: Asking, method: PublicMethod, request: Message) -> Any:
    """The answer, or the refusal of the master as a value: the rest of the page is for all."""
    try:
        return await line.call(method, request)
    except PermissionDenied as error:
        return error


async def _lent(line: Asking, told: Any, look: OutputLook) -> Mapping[str, Any]:
    if isinstance(told, PermissionDenied):
        return {"refused": told.what}
    servers = sorted(told.servers, key=lambda one: _PLACES.get(one.state, len(_PLACES)))
    moving = [one for one in servers if one.state in _MOVING]
    found = await asyncio.gather(*(_node(line, one.node_id) for one in moving[:MOST_PROOFS]))
    proofs = [
        EmptyProof(one.node_id, one.state, gpu_words(node))
        for one, node in zip(moving, found, strict=False)
        if node is not None
    ]
    controller = told.controller if told.HasField("controller") else None
    return {
        "refused": "",
        "controller": words.controller_text(controller, look),
        "servers": [
            [*map(clean_line, words.server_row(one)), _since(one, look)]
            for one in servers[:MOST_ROWS]
        ],
        "more": max(0, len(servers) - MOST_ROWS),
        "cells": sheet(words.SERVERS, []).headings,
        "counts": {state: sum(one.state == state for one in servers) for state in _STATES},
        "proofs": proofs,
    }


async def _node(line: Asking, node_id: str) -> node_pb2.Node | None:
    try:
        answer = await line.call(_NODE, node_service_pb2.GetNodeRequest(node_id=node_id))
    except NotFound:
        return None
    node: node_pb2.Node = answer.node
    return node


def gpu_words(node: node_pb2.Node) -> list[str]:
    """The state of each GPU: the proof that nothing is on it, or that something is."""
    return [
        f"GPU {gpu.index}: {_held(status)}, {_memory(status)}" for _, gpu, status in rows_of([node])
    ]


def _held(status: node_pb2.GpuStatus) -> str:
    return f"attempt {status.attempt} holds it" if status.attempt else "no attempt holds it"


def _memory(status: node_pb2.GpuStatus) -> str:
    if not status.HasField("used_memory_bytes"):
        return "its memory in use is not reported"
    return f"{status.used_memory_bytes / 2**20:.0f} MiB in use"


def _since(one: loan_service_pb2.LoanServer, look: OutputLook) -> str:
    if not one.HasField("since_time"):
        return "-"
    by = f" by {clean_line(one.actor)}" if one.actor else ""
    return f"{when(from_timestamp(one.since_time), look)}{by}"


async def _planned(line: Asking, asked: AskedBack, look: OutputLook) -> ShownPlan | None:
    """The plan that was asked for, if any. A refusal is shown in its place."""
    if not (asked.number or asked.hosts):
        return None
    try:
        request = _request(asked)
        answer = await line.call(_PLAN, request, PATIENCE_S)
    except PermissionDenied as error:
        return ShownPlan(refused=error.what)
    except DlqError as error:
        return ShownPlan(refused=error.what, hint=error.hint)
    plan = answer.plan
    pairs = words.plan_pairs(plan)
    jobs = [words.planned_job_row(job, look) for job in plan.jobs]
    shown = ShownPlan(pairs, sheet(words.PLANNED_JOBS, jobs, MOST_ROWS), names=pairs[0][1])
    if refused := words.refused_words(plan):
        return shown._replace(refused=refused)
    return shown._replace(command=words.command_of(plan), request=_act(request, plan.token))


def _request(asked: AskedBack) -> loan_service_pb2.PlanReclaimRequest:
    if asked.number and asked.hosts:
        raise InvalidRequest("name servers, or give a number", hint="one of the two")
    if asked.number and not (asked.number.isascii() and asked.number.isdigit()):
        raise InvalidRequest(f"{asked.number[:64]!r} is no number of servers", field="count")
    within_s = duration_s("within", asked.within or None)
    return loan_service_pb2.PlanReclaimRequest(
        node_ids=names_of(asked.hosts.split()),
        count=min(int(asked.number[:9] or 0), 2**31 - 1) if asked.number else 0,
        within_duration=None if within_s is None else to_duration(within_s),
        force=bool(asked.force),
    )


def _act(request: loan_service_pb2.PlanReclaimRequest, token: str) -> Mapping[str, Any]:
    """The token with all arguments: that works also after the master has forgotten its plans."""
    told: dict[str, Any] = {"token": token, "force": request.force}
    if request.HasField("within_duration"):
        told["withinDuration"] = f"{request.within_duration.seconds}s"
    if request.count:
        return {**told, "count": request.count}
    return {**told, "nodeIds": list(request.node_ids)}


def _rented(told: Any, look: OutputLook) -> Mapping[str, Any]:
    if isinstance(told, PermissionDenied):
        return {"refused": told.what}
    machines = [
        (pool.name, sheet(rented.MACHINES, _machines(pool, look), MOST_MACHINES))
        for pool in told.pools
        if pool.machines
    ]
    return {
        "refused": "",
        "none": "" if told.pools else rented.NO_POOLS,
        "pools": sheet(rented.POOLS, map(rented.pool_row, told.pools)),
        "sum": rented.sum_words(told),
        "machines": machines,
    }


def _machines(pool: pool_service_pb2.Pool, look: OutputLook) -> list[list[str]]:
    """The newest first."""
    return [rented.machine_row(one, look) for one in pool.machines][::-1]
