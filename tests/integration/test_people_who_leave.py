"""A name is given to somebody else: with a real master, its broker, an agent, and two accounts of
one name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from dlq.v1 import job_pb2, resource_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity
from dlq_common.errors import Unauthenticated
from dlq_common.identity.pki import new_key_and_csr
from support.broker_login import answer_to, log_in
from support.harness import Daemons
from support.host_account import CAN_MAKE_ACCOUNTS, free_name, host_account
from support.waiting import wait_until
from support.wire_methods import Method, every_method, tells

pytestmark = [
    pytest.mark.long("unit/master/control/people/test_control_leaving.py"),
    pytest.mark.integration,
    pytest.mark.skipif(not CAN_MAKE_ACCOUNTS, reason="only root can make accounts, with useradd"),
]

DEADLINE_S = 20.0
HIDDEN = {grpc.StatusCode.NOT_FOUND}
DEAF = "trap '' TERM; while :; do sleep 1; done"


@pytest.fixture
def daemons() -> Iterator[Daemons]:
    # Below /tmp itself, because pytest's own directories are closed to other users.
    root = Path("/tmp") / f"dlq-people-{os.getpid()}"
    root.mkdir(mode=0o755)
    try:
        with Daemons(root, ("n1",)).up() as made:
            yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)


def connected(daemons: Daemons, uid: int) -> Connection:
    founder = load_identity(daemons.root / "home")
    assert founder is not None
    socket_path = daemons.root / "master" / "login.sock"
    return Connection(
        log_in(uid, socket_path, founder, daemons.api), patience_s=60.0, deadline_s=DEADLINE_S
    )


def spec_of(script: str) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec(command=["/bin/sh", "-c", script], working_directory="/tmp")
    spec.resources.CopyFrom(resource_pb2.ResourceRequest(gpu_count=1))
    return spec


def names_jobs(method: Method) -> list[str]:
    """The fields of a request that say which job; `opening` is where a command in a job says it."""
    found = descriptor_pool.Default().FindMessageTypeByName(method.input_type).fields_by_name
    return [name for name in ("job_id", "job_ids", "opening") if name in found]


def asked_of(method: Method, field: str, job_id: str) -> Any:
    request: Any = GetMessageClass(
        descriptor_pool.Default().FindMessageTypeByName(method.input_type)
    )()
    if field == "job_id":
        request.job_id = job_id
    elif field == "job_ids":
        request.job_ids.append(job_id)
    else:
        request.opening.job_id = job_id
        request.opening.spec.command.append("/bin/true")
    known = request.DESCRIPTOR.fields_by_name
    if "request_id" in known:
        request.request_id = f"again-{method.path[-20:]}-{field}".replace("/", "-")
    if "signal" in known:
        request.signal = "USR1"
    if "name" in known and method.path.endswith("UpdateJob"):
        request.name = "mine"
    return request


def outcome(line: Connection, method: Method, field: str, job_id: str) -> tuple[Any, list[Any]]:
    """The status, and what came."""
    request = asked_of(method, field, job_id)
    answer = GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(method.output_type))
    shapes: dict[tuple[bool, bool], Callable[..., Any]] = {
        (False, False): line.channel.unary_unary,
        (False, True): line.channel.unary_stream,
        (True, True): line.channel.stream_stream,
    }
    call = shapes[method.client_streams, method.server_streams](
        method.path,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    seen: list[Any] = []
    try:
        got = call(iter([request]) if method.client_streams else request, timeout=3.0)
        seen += list(got) if method.server_streams else [got]
    except grpc.RpcError as error:
        return error.code(), seen
    return grpc.StatusCode.OK, seen


def test_the_next_account_of_a_name_gets_nothing_of_the_one_before(daemons: Daemons) -> None:
    name = free_name()
    with host_account(name) as old:
        ada = connected(daemons, old.pw_uid)
        jobs = Jobs(ada)
        first = wire.SubmitJobRequest(request_id="mine", spec=spec_of(DEAF))
        running = ada.call(jobs.stub.SubmitJob, first).job.job_id
        held = spec_of("cat secrets")
        held.hold = True
        waiting = ada.call(
            jobs.stub.SubmitJob, wire.SubmitJobRequest(request_id="held", spec=held)
        ).job.job_id
        wait_until(lambda: jobs.get(running).job.HasField("start_time"), what="it runs")
        refused = daemons.dlq("admin", "user", "del", name, "-y")
        assert refused.code != 0
        assert "2 jobs live (1 run, 1 wait or are held)" in refused.err
        daemons.said("admin", "user", "del", name, "-y", "--cancel-jobs")
        with pytest.raises(Unauthenticated):
            jobs.get(running)
    asked = new_key_and_csr("x").request
    answer = answer_to(old.pw_uid, daemons.root / "master" / "login.sock", asked)
    assert "no account" in answer["error"], "and no certificate"

    with host_account(free_name()), host_account(name) as new:  # the old number is another's now
        assert new.pw_uid != old.pw_uid
        line = connected(daemons, new.pw_uid)
        methods = [(method, field) for method in every_method() for field in names_jobs(method)]
        assert len(methods) >= 17, "the descriptors name them"
        for method, field in methods:
            for job_id in (running, waiting):
                code, seen = outcome(line, method, field, job_id)
                told = [one for one in seen if tells(one)]
                assert code in HIDDEN or not told, (method.path, field, code, told)
                if field != "job_ids":
                    assert code in HIDDEN, (method.path, field, code)
        mine = Jobs(line)
        assert not mine.list().jobs
        again = line.call(mine.stub.SubmitJob, first)
        assert again.job.job_id not in (running, waiting), "a request id of another person"
        assert [job.job_id for job in mine.list().jobs] == [again.job.job_id]
        daemons.said("cancel", "--kill", "-y", again.job.job_id)
        with daemons.connect() as operator:
            every = {job.job_id for job in Jobs(operator).list(user="*").jobs}
            assert {running, waiting} <= every
            Jobs(operator).cancel(running, kill=True)
