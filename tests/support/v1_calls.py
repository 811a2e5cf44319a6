"""Calls of `v1` with their answers, recorded for as long as `v1` lives, and what has gone since.

    PYTHONPATH=tests python tests/support/v1_calls.py

records calls of reads and parameters that are new. A recorded call is never taken away. Its answer
is replaced where it has gained fields, and the command refuses where one has lost some.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

from dlq_common.identity.pki import Role
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import HoldKind, JobState, Lateness
from dlq_master.model.machines.rented import MachineState
from dlq_master.model.nodes.node import FlagNote, NodeFlag, NodePool
from dlq_master.model.usage.accounting import Account, Level, UseClass, Used
from dlq_master.model.usage.cost import Stay
from dlq_master.planner.forecasts import Range
from dlq_web.api import streams
from dlq_web.api.openapi import description
from dlq_web.api.resources import RESOURCES
from dlq_web.api.stream_reads import LINES, PLAIN, STREAMS
from support.log_agent import LogAgent, piece
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.stored_values import a_job, a_machine, a_node, a_reservation, a_team
from support.web_house import WebHouse, web_house

FOLDER = Path(__file__).resolve().parents[1] / "data" / "v1"
CALLS, OPENAPI = FOLDER / "calls.json", FOLDER / "openapi.json"
DAY_S = 86_400
# A value for each parameter of a read. One that is missing stops the record.
VALUES: Mapping[str, str] = {
    "job": "1", "node": "gpu01", "state": "running,queued", "user": "alice", "queue": "default",
    "name": "train", "since": "2d", "ids": "1,2", "limit": "2", "team": "vision", "q": "1",
    "gpu_type": "H100-80GB", "order": "-submit", "flag": "loaned", "method": "SubmitJob",
    "object": "1", "decision": "OK", "from": "2026-01-01T00:00Z", "until": "2026-01-01T00:00Z",
}  # fmt: skip
NODE_STATE = "up"  # of machines
UNRECORDED = ("cursor",)  # another one each time
SPEC = {"command": ["/bin/true"], "resources": {"gpuCount": 1}, "name": "new"}
# Calls of the bridge, in this order: a change shows in the answers after it.
ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("QueueService/GetCluster", {}),
    ("QueueService/ListQueues", {}),
    ("JobService/ListJobs", {"user": "*", "pageSize": 2}),
    ("JobService/GetJob", {"jobId": "1"}),
    ("JobService/GetJob", {"jobId": "99"}),
    ("JobService/GetJob", {"job": "1"}),
    ("JobService/ExplainJob", {"jobId": "1"}),
    ("JobService/ListEvents", {"jobId": "1"}),
    ("NodeService/ListNodes", {}),
    ("NodeService/GetNode", {"nodeId": "gpu01"}),
    ("TeamService/ListTeams", {}),
    ("UsageService/GetUsage", {"by": ["user", "team"]}),
    ("UsageService/GetCosts", {"by": ["job"]}),
    ("LoanService/ListLoans", {}),
    ("PoolService/ListPools", {}),
    ("ReservationService/ListReservations", {}),
    ("ForecastService/GetForecastQuality", {}),
    ("AdminService/GetPolicy", {}),
    ("AdminService/ListUsers", {}),
    ("AdminService/ListAuditLines", {"user": "alice"}),
    ("JobService/SubmitJob", {"requestId": "r1", "spec": SPEC}),
    ("JobService/SubmitJob", {"requestId": "r2", "spec": SPEC, "validateOnly": True}),
    ("JobService/HoldJob", {"requestId": "r3", "jobId": "1", "reason": "lunch"}),
    ("JobService/ReleaseJob", {"requestId": "r4", "jobId": "1"}),
    ("JobService/CancelJob", {"requestId": "r5", "jobId": "1"}),
    ("AdminService/SetNodeFlags", {"requestId": "r6", "nodeId": "gpu01", "setFlags": ["draining"]}),
)
# Reads of streams that end by themselves: refusals, and the output that SAID is.
STREAMED: tuple[tuple[str, str], ...] = (
    ("/v1/events?after=9000000000000", ""),
    ("/v1/events?afer=3", ""),
    ("/v1/jobs/99/logs", ""),
    ("/v1/jobs/1/logs", ""),
    ("/v1/jobs/1/logs?rang=1", ""),
    ("/v1/jobs/2/logs?attempt=9", ""),
    ("/v1/jobs/2/logs?attempt=1&rank=0&offset=0&follow=true", ""),
    ("/v1/jobs/2/logs?attempt=1&rank=0&offset=0&follow=true", LINES),
)
SAID = b"line 1\nline 2\n"
Shape: TypeAlias = "dict[str, Shape] | list[Shape] | set[str]"


class V1Call(NamedTuple):
    """A call, and the answer that a release gave."""

    method: str
    path: str
    body: dict[str, Any] | None
    status: int
    answer: Any
    accept: str = ""  # the header

    @property
    def name(self) -> str:
        """The request in one line."""
        asked = "" if self.body is None else f" {json.dumps(self.body)}"
        return f"{self.method} {self.path}{asked} {self.accept}".rstrip()

    def row(self) -> tuple[Any, ...]:
        """As it is recorded."""
        return self if self.accept else self[:-1]


def wanted() -> Iterator[V1Call]:
    """Every read alone and with each of its parameters, then the calls of the bridge, then the
    streams.
    """
    for resource in RESOURCES:
        path = f"/v1{resource.path}"
        within = [one.name for one in resource.params if f"{{{one.name}}}" in path]
        path = _filled(path, within)
        yield V1Call("GET", path, None, 0, None)
        for one in resource.params:
            if one.name not in (*within, *UNRECORDED):
                machines = one.name == "state" and resource.items != "jobs"
                value = NODE_STATE if machines else VALUES[one.name]
                yield V1Call("GET", f"{path}?{one.name}={value}", None, 0, None)
    for method, body in ASKED:
        yield V1Call("POST", f"/api/dlq.v1.{method}", body, 0, None)
    for stream in STREAMS:
        path = _filled(f"/v1{stream.path}", [one.name for one in stream.of_path()])
        for one in stream.of_query():
            yield V1Call("GET", f"{path}?{one.name}=wrong", None, 0, None)
    for path, accept in STREAMED:
        yield V1Call("GET", path, None, 0, None, accept)


def _filled(path: str, names: Iterable[str]) -> str:
    for name in names:
        path = path.replace(f"{{{name}}}", VALUES[name])
    return path


def recorded() -> list[V1Call]:
    """All that is recorded."""
    return [V1Call(*one) for one in json.loads(CALLS.read_text())] if CALLS.exists() else []


async def answered(place: Path, calls: list[V1Call]) -> list[V1Call]:
    """The same calls, with the answers of this commit."""
    async with rpc_house(place) as house:
        furnish(house)
        agent = LogAgent(house)
        await agent.connect()
        speaking = asyncio.create_task(_speak(agent))
        # A stream is refused by its status alone, however slow this machine is.
        with patch.object(streams, "FIRST_S", DEADLINE_S):
            async with web_house(house, "olga", Role.OPERATOR) as web:
                told = [await _asked(web, one) for one in calls]
        speaking.cancel()
        await asyncio.wait([speaking])
        return told


async def _speak(agent: LogAgent) -> None:
    """Every reader of output gets all of SAID."""
    while True:
        command = await agent.asked(None)
        await agent.push(command.relay_id, piece(0, SAID, end=True))


async def _asked(web: WebHouse, call: V1Call) -> V1Call:
    headers = web.program() | ({"accept": call.accept} if call.accept else {})
    answer = await web.browser.request(call.method, call.path, headers=headers, json=call.body)
    kind = answer.headers["content-type"].partition(";")[0]
    if kind == LINES:
        told: Any = [json.loads(line) for line in answer.text.splitlines()]
    else:
        told = answer.text if kind == PLAIN else answer.json()
    return call._replace(status=answer.status_code, answer=told)


def furnish(house: RpcHouse) -> None:
    """Jobs in every state, nodes of every kind, a team, a reservation, a rented machine."""
    read, now_s = house.control.published, house.clock.now_s()
    for job in (
        a_job(1, name="train", submit_time_s=now_s - 900.0),
        a_job(2, user="olga", name="train", team="vision", submit_time_s=now_s - 800.0),
        a_job(3, user="olga", state=JobState.HELD, hold=HoldKind.USER, submit_time_s=now_s - 700.0),
        a_job(
            4, user="olga", state=JobState.CANCELLED, submit_time_s=now_s - 600.0,
            end_time_s=now_s - 60.0, lateness=Lateness(now_s // DAY_S * DAY_S, 0.2),
        ),
    ):  # fmt: skip
        read.all_jobs[job.job_id] = job
        house.control.note("job_submitted", job_id=job.job_id, actor=f"user:{job.user}")
    house.control.place(JobId(2), "gpu01")
    read.start_ranges[JobId(1)] = Range(now_s + 100.0, now_s + 200.0, now_s + 300.0)
    lent = FlagNote(NodeFlag.LOANED, "night", "user:prism", now_s - 3600.0)
    for node in (
        a_node("gpu01"),
        a_node("inf01", pool=NodePool.INFERENCE, flags=frozenset({NodeFlag.LOANED}), notes=(lent,)),
    ):
        read.all_nodes[node.node_id] = node
    read.all_teams["vision"] = a_team()
    read.all_reservations["m1"] = a_reservation(begin_s=now_s, end_s=now_s + 3600.0)
    today = int(now_s // DAY_S)
    for day in (today, today + 1):  # a test may run over midnight
        account = Account(day, "alice", "vision", UseClass.BEST_EFFORT, "training")
        read.uses[account] = Used(10.0, 1.0, 2.0, 3.0)
        read.pool_uses[day, "training"] = Level(100.0, 20.0, 3.0)
    read.rented = [a_machine(state=MachineState.UP, asked_s=now_s - 90.0, up_s=now_s - 60.0)]
    read.stays = [Stay("spot-3-1", AttemptKey(JobId(2), 1), 0.5, now_s - 50.0, now_s)]
    house.control.note("node_noted", node_id=NodeId("gpu01"))


def shape(value: Any) -> Shape:
    """The fields and types of a value; of a list, those of all its items together."""
    if isinstance(value, dict):
        return {key: shape(of) for key, of in value.items()}
    if isinstance(value, list):
        return [shape(one) for one in value]
    if isinstance(value, bool) or value is None:
        return {type(value).__name__}
    return {"number"} if isinstance(value, int | float) else {"str"}


def lost(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """Each field that was there and is not, or has another type; None tells no type."""
    if before is None:
        return
    if isinstance(before, dict) and isinstance(now, dict):
        for key, of in before.items():
            if key in now:
                yield from lost(of, now[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is gone"
    elif isinstance(before, list) and isinstance(now, list):
        if before and not now:
            yield f"{where} is empty"
        for one in before if now else ():
            # Any item of now may be the one that it was: lists grow in the middle.
            yield from min((list(lost(one, other, f"{where}[]")) for other in now), key=len)
    elif shape(before) != shape(now):
        yield f"{where} was {before!r:.60} and is {now!r:.60}"


def lost_words(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """The same of the description of the API, where a changed word is a changed type too."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key, of in before.items():
            if key in now:
                yield from lost_words(of, now[key], f"{where}.{key}")
            elif key not in ("format", "pattern", "minimum"):
                yield f"{where}.{key} is gone"
    elif isinstance(before, list) and isinstance(now, list):
        yield from (f"{where} lacks {one!r:.90}" for one in before if one not in now)
    elif before != now:
        yield f"{where} was {before!r:.60} and is {now!r:.60}"


def without_prose(value: Any) -> Any:
    """A description of the API without the texts for people."""
    if isinstance(value, list):
        return [without_prose(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without_prose(of)
        for key, of in value.items()
        if not (key in ("description", "summary", "version") and isinstance(of, str))
    }


def main() -> None:
    """Record what is new."""
    before = {one.name: one for one in recorded()}
    calls = [*before.values(), *(one for one in wanted() if one.name not in before)]
    with tempfile.TemporaryDirectory() as place:
        now = asyncio.run(answered(Path(place), calls))
    gone = [
        f"{one.name}: {what}"
        for one in now
        if one.name in before
        for what in changes(before[one.name], one)
    ]
    told = without_prose(description())
    gone += lost_words(json.loads(OPENAPI.read_text()), told) if OPENAPI.exists() else []
    if gone and "--anew" not in sys.argv:
        sys.exit("v1 has lost something, so nothing is recorded:\n" + "\n".join(gone))
    kept = [
        before[one.name] if one.name in before and not any(changes(one, before[one.name])) else one
        for one in now
    ]
    FOLDER.mkdir(exist_ok=True)
    lines = (json.dumps(one.row(), separators=(",", ":"), ensure_ascii=False) for one in kept)
    CALLS.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    OPENAPI.write_text(json.dumps(told, separators=(",", ":")) + "\n")


def changes(before: V1Call, now: V1Call) -> Iterator[str]:
    """How the later answer fails a program that relied on the earlier one."""
    if before.status != now.status:
        yield f"answered with {before.status}, and now with {now.status}: {now.answer!r:.200}"
        return
    if before.status >= 400:
        for key in ("code", "reason"):
            if before.answer.get(key) != now.answer.get(key):
                yield f"{key} was {before.answer.get(key)}, and is {now.answer.get(key)}"
    yield from lost(before.answer, now.answer)


if __name__ == "__main__":
    main()
