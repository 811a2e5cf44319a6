"""Any value that the store keeps, for property tests, and a batch that writes every table."""

from math import inf
from typing import Any

from hypothesis import strategies as st

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, Fence, JobId, NodeId
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.jobs.recording import Cause, Evidence, Recording
from dlq_master.model.lease import Lease, LeaseKind
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.nodes.node import Gpu, Node
from dlq_master.model.resources import Allocation, Request, Slot
from dlq_master.model.usage.accounting import Account, Level, UseClass, Used
from dlq_master.model.usage.cost import Stay
from dlq_master.store.batch import Batch, Intention, JoinToken, StoredRequest, User
from dlq_master.store.stored_tables import (
    FORESEEN,
    MACHINES,
    NOTIFY_RULES,
    RESERVATIONS,
    REVOCATIONS,
    TEAMS,
    TOKENS,
    USERS,
    WAITED,
)
from dlq_master.store.tables.accounts import PoolRow, UseRow
from dlq_master.store.tables.notify_rules import NotifyRule
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.tenants import (
    Foreseen,
    Member,
    Reservation,
    Spent,
    Team,
    TeamRules,
    Waited,
)

_numbers = st.integers(1, 64)
st.register_type_strategy(
    Request,
    st.builds(
        lambda nodes, each, kinds, cpus: Request(
            gpus=each * (nodes or 1),
            nodes=nodes,
            gpu_type=kinds[0] if kinds else None,
            or_gpu_types=tuple(kinds[1:]),
            cpus_per_node=cpus,
        ),
        st.none() | st.integers(1, 8),
        _numbers,
        st.lists(st.text(), max_size=3, unique=True),
        st.none() | _numbers,
    ),
)
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))

jobs = st.from_type(Job)
attempts = st.from_type(Attempt)
nodes = st.from_type(Node)
users = st.from_type(User)
tokens = st.from_type(JoinToken)
recordings = st.from_type(Recording)
evidence = st.from_type(Evidence)
teams = st.from_type(Team)
reservations = st.from_type(Reservation)
notify_rules = st.from_type(NotifyRule)
revocations = st.from_type(Revocation)
waits = st.from_type(Waited)
machines = st.from_type(Machine)


def a_notify_rule(rule_id: str = "n1", **changes: Any) -> NotifyRule:
    """A rule of alice."""
    rule = NotifyRule(rule_id, "alice", "mail", "alice@example.org", ("failed",), 1.0)
    return rule._replace(**changes)


def a_job(number: int = 1, **changes: Any) -> Job:
    """A queued job of alice."""
    job = Job(
        job_id=JobId(number),
        user="alice",
        name=f"job {number}",
        request=Request(gpus=2),
        submit_time_s=100.0 + number,
        state=JobState.QUEUED,
        sequence=number,
    )
    return job._replace(**changes)


def an_attempt(job: int = 1, number: int = 1, **changes: Any) -> Attempt:
    """A running attempt on gpu01."""
    slot = Slot(NodeId("gpu01"), 0b11)
    attempt = Attempt(
        key=AttemptKey(JobId(job), number),
        epoch=3,
        lease=Lease(LeaseKind.BE, Allocation((slot,)), Fence(3, number), 300.0, 3600.0),
        state=AttemptState.RUNNING,
        assigned_time_s=110.0,
        started_time_s=111.0,
    )
    return attempt._replace(**changes)


def a_node(name: str = "gpu01", **changes: Any) -> Node:
    """A node with two GPUs."""
    gpus = tuple(Gpu(index=index, gpu_type="H100-80GB") for index in range(2))
    return Node(NodeId(name), gpus)._replace(**changes)


def an_event(sequence: int, job: int | None = None, **facts: str) -> JournalEvent:
    """A line of the journal."""
    job_id = None if job is None else JobId(job)
    return JournalEvent(
        kind="job_noted", time_s=100.0 + sequence, seq=sequence, job_id=job_id, data=facts
    )


def an_intention(sequence: int, job: int = 1, kind: str = "launch") -> Intention:
    """A command that gpu01 has not taken."""
    return Intention(
        sequence, NodeId("gpu01"), kind, AttemptKey(JobId(job), 1), epoch=3, node_rank=0
    )


def a_recording(job: int = 1, number: int = 1, **changes: Any) -> Recording:
    """A start of a job on gpu01 that nobody has told of yet."""
    recording = Recording(
        key=AttemptKey(JobId(job), number),
        epoch=3,
        family="alice/vgg",
        gpu_type="H100-80GB",
        gpus=2,
        node_ids=(NodeId("gpu01"),),
        spread=False,
        cause=Cause.FIRST,
        order_time_s=110.0 + job,
        window_s=120.0,
    )
    return recording._replace(**changes)


def an_evidence(job: int = 1, rank: int = 0) -> Evidence:
    """What gpu01 told."""
    key = AttemptKey(JobId(job), 1)
    return Evidence(key, rank, NodeId("gpu01"), "H100-80GB", 60.0, (), '{"schema":""}', "[]", 170.0)


def a_team(name: str = "vision", **changes: Any) -> Team:
    """A team with a quota, of alice and bob."""
    members = (Member("alice", TeamRules(gpu_limit=4), True), Member("bob"))
    return Team(name, 10.0, TeamRules(gpu_quota=8, share=2.0), 4, members)._replace(**changes)


def a_reservation(reservation_id: str = "m1", **changes: Any) -> Reservation:
    """Two hours of gpu01."""
    nodes = (NodeId("gpu01"),)
    kept = Reservation(reservation_id, nodes, 1000.0, 8200.0, "fans", "root", 10.0)
    return kept._replace(**changes)


def a_wait(job: int = 1, **changes: Any) -> Waited:
    """It has waited for GPUs, and for its turn."""
    spent = (Spent("resources", 30.0, 20.0), Spent("behind_higher_rank", 15.0, 10.0))
    return Waited(JobId(job), spent, 131.0, ("resources",))._replace(**changes)


def a_start(job: int = 1, **changes: Any) -> Foreseen:
    """It was expected to start at 400."""
    return Foreseen(JobId(job), 100.0, 200.0, 400.0, 500.0)._replace(**changes)


def a_use(**changes: Any) -> UseRow:
    """GPU-seconds of alice's."""
    account = Account(1, "alice", "vision", UseClass.BEST_EFFORT, "training")
    return UseRow(account._replace(**changes), Used(10.0, 1.0, 2.0, 3.0))


def a_machine(request_id: str = "spot-3-1", **changes: Any) -> Machine:
    """One that was asked for, for job 1."""
    machine = Machine(request_id, "spot", NodeId(request_id), 12.5, 110.0, jobs=(1,))
    return machine._replace(**changes)


def a_stay(request_id: str = "spot-3-1", job: int = 1, **changes: Any) -> Stay:
    """A quarter of that machine, in the hands of a job's first attempt."""
    return Stay(request_id, AttemptKey(JobId(job), 1), 0.25, 115.0)._replace(**changes)


def first_batch() -> Batch:
    """Rows that `mixed_batch` changes and drops."""
    batch = Batch(
        jobs=[a_job(1), a_job(2)],
        specs=[(JobId(1), b"\x00one"), (JobId(2), b"two")],
        attempts=[an_attempt(1)],
        nodes=[a_node("gpu01"), a_node("gpu02")],
        requests=[StoredRequest("alice", "r1", "d1", "1", 50.0)],
        events=[an_event(1, 1), an_event(2, 2), an_event(3)],
        intentions=[an_intention(1), an_intention(2, kind="stop")],
        recordings=[a_recording(1), a_recording(2)],
        evidence=[an_evidence(1)],
        uses=[a_use()],
        idle_uses=[a_use()._replace(spent=Used(idle=7.0))],
        pool_uses=[PoolRow(1, "training", Level(10.0, 20.0, 30.0))],
        stays=[a_stay(), a_stay("spot-3-2", job=2)],
        meta={"epoch": "3"},
    )
    batch.put(
        USERS, User("alice", "user", 1001, 1001, (1001,), 1.0), User("bob", "user", 2, 2, (), 1.0)
    )
    batch.put(TOKENS, JoinToken("t1", "gpu01", "hash", 1.0, 2.0, "alice"))
    batch.put(TEAMS, a_team(), a_team("nlp"))
    batch.put(RESERVATIONS, a_reservation(), a_reservation("m2"))
    batch.put(NOTIFY_RULES, a_notify_rule(), a_notify_rule("n2"))
    batch.put(REVOCATIONS, Revocation("serial:1f", 100.0, 101.0, "root", "lost"))
    batch.put(WAITED, a_wait(1), a_wait(2))
    batch.put(FORESEEN, a_start(1), a_start(2, high_s=inf))
    batch.put(MACHINES, a_machine(), a_machine("spot-3-2"))
    return batch


def mixed_batch() -> Batch:
    """New rows, changed rows and dropped rows in every table."""
    batch = Batch(
        jobs=[a_job(1, state=JobState.COMPLETED, end_time_s=120.0), a_job(3, hold=HoldKind.USER)],
        specs=[(JobId(3), b"three")],
        attempts=[
            an_attempt(1, state=AttemptState.SUCCEEDED, ended_time_s=120.0),
            an_attempt(3),
        ],
        nodes=[a_node("gpu01", boot_id="b2"), a_node("gpu03")],
        forgotten_nodes=[NodeId("gpu02")],
        requests=[StoredRequest("alice", "r2", "d2", "3", 60.0)],
        forget_requests_before_s=55.0,
        events=[an_event(4, 3, why="because"), an_event(5, 1)],
        intentions=[an_intention(3, 3)],
        delivered=[1],
        recordings=[a_recording(1, told=(0,)), a_recording(3)],
        evidence=[an_evidence(3)],
        uses=[a_use(), a_use(day=2)],
        idle_uses=[
            a_use()._replace(spent=Used(idle=5.0)),
            a_use(day=2)._replace(spent=Used(idle=1.0)),
        ],
        pool_uses=[
            PoolRow(1, "training", Level(1.0, 1.0, 1.0)),
            PoolRow(2, "inference", Level(5.0)),
        ],
        stays=[a_stay(until_s=135.0), a_stay("spot-4-1", job=3)],
        meta={"epoch": "4", "cluster": "lab"},
    )
    batch.put(USERS, User("carol", "admin", 3, 3, (), 2.0))
    batch.put(TOKENS, JoinToken("t2", "", "hash", 1.0, 2.0, "alice"))
    batch.put(TEAMS, a_team(version=2), a_team("robots"))
    batch.put(RESERVATIONS, a_reservation(active=True))
    batch.put(NOTIFY_RULES, a_notify_rule(events=("failed", "ended")))
    batch.put(WAITED, a_wait(2, now=()), a_wait(3))
    batch.put(FORESEEN, a_start(1, started_s=450.0), a_start(3))
    batch.put(
        MACHINES,
        a_machine(state=MachineState.FAILED, end_s=140.0, fault="no host"),
        a_machine("spot-4-1"),
    )
    batch.drop(USERS, "bob")
    batch.drop(TOKENS, "t1")
    batch.drop(TEAMS, "nlp")
    batch.drop(RESERVATIONS, "m2")
    batch.drop(NOTIFY_RULES, "n2")
    batch.drop(FORESEEN, JobId(2))
    return batch
