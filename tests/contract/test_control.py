"""What the rpc room may rely on: the fake loop of its tests keeps the promises of the real one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import AlreadyExists, Conflict, IllegalTransition, NotFound, Unauthenticated
from dlq_master.control import stimuli as say
from dlq_master.control.composition.state import State, restore
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.config import MasterConfig, NodesConfig, SchedulerConfig
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.loop import Loop
from dlq_master.control.placement.policies import policy_of
from dlq_master.control.read_model.job_blocks import EVERYBODY
from dlq_master.control.read_model.ports import Control
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import HoldKind, JobState, RunRules
from dlq_master.model.nodes.node import Gpu, NodeFlag
from dlq_master.model.nodes.node_steps import Registered
from dlq_master.model.resources import Request
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.store.batch import Batch, User
from dlq_master.store.port import CommitFailed
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from support.fake_clock import FakeClock
from support.fake_control import FakeControl
from support.memory_store import MemoryStore

ALICE, ROOT = say.Caller("alice", "user"), say.Caller("root", "admin")
GPU01 = NodeId("gpu01")


@pytest.fixture(params=["fake", "real"])
async def control(request: pytest.FixtureRequest) -> AsyncIterator[Control]:
    if request.param == "fake":
        fake = FakeControl(FakeClock())
        fake.add_user("alice", "user", 1001)
        fake.add_user("root", "admin", 1004)
        yield fake
        return
    loop = a_loop()
    turning = asyncio.create_task(loop.run())
    yield loop
    loop.stop()
    await turning


def a_loop() -> Loop:
    """The real loop on a store that forgets."""
    clock, store = FakeClock(), MemoryStore()
    people = [
        User("alice", "user", 1001, 1001, (), 0.0),
        User("root", "admin", 1004, 1004, (), 0.0),
    ]
    store.write(Batch(changes=put(USERS, people), meta={"epoch": "0"}))
    config = MasterConfig(
        scheduler=SchedulerConfig("best-effort", {}), nodes=NodesConfig(start_grace=Seconds(0.0))
    )
    policy, terms = policy_of(config), config.lease.terms()
    state = State(
        config=config,
        terms=terms,
        policy=policy,
        cluster=Cluster(policy.ordering, terms),
        started_s=clock.now_s(),
        epoch=1,
    )
    restore(state, store.load())
    return Loop(
        state=state,
        wiring=WIRING,
        clock=clock,
        store=store,
        records=store,
        transport=Sessions(CheckpointPlaces("/ckpt", b"seed")),
        failpoints=Failpoints(),
        state_dir=Path("/"),
    )


def a_submission(request_id: str = "r1") -> say.SubmitJob:
    return say.SubmitJob(
        caller=ALICE,
        request_id=request_id,
        digest="d",
        name="job",
        queue="",
        request=Request(gpus=1),
        spec=b"spec",
        rules=RunRules(),
    )


def an_edit(**more: Any) -> dict[str, Any]:
    return {"caller": ALICE, "request_id": "e1", "job_id": JobId(1), **more}


def a_token(node_id: str = "", lifetime_s: float = 60.0) -> say.CreateToken:
    return say.CreateToken(
        caller=ROOT,
        request_id="t1",
        token_id="1",
        secret_hash=hashed("secret"),
        node_id=node_id,
        lifetime_s=lifetime_s,
    )


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def a_use(key: str = "key", secret: str = "secret", node_id: str = "gpu01") -> say.UseToken:
    return say.UseToken(
        token_id="1", secret_hash=hashed(secret), key_fingerprint=key, wished_node_id=node_id
    )


async def test_an_accepted_job_is_published_before_its_answer(control: Control) -> None:
    submitted = await control.ask(a_submission())
    assert control.published.job(submitted.job.job_id) == submitted.job
    assert control.published.spec(submitted.job.job_id) == b"spec"
    assert list(control.published.jobs()) == [submitted.job]
    assert submitted.reasons, "a job that waits has a reason"


async def test_the_same_request_is_the_same_job(control: Control) -> None:
    first = await control.ask(a_submission())
    again = await control.ask(a_submission())
    other = await control.ask(a_submission("r2"))
    assert first.job.job_id == again.job.job_id != other.job.job_id


async def test_jobs_are_read_in_blocks_by_their_ids(control: Control) -> None:
    ids = [(await control.ask(a_submission(f"r{n}"))).job.job_id for n in range(70)]
    read = control.published
    for user, expected in ((EVERYBODY, sorted(ids)), (ALICE.name, sorted(ids)), ("carol", [])):
        blocks = [read.block(user, number) for number in read.block_numbers(user, 0)]
        assert [job.job_id for block in blocks for job in block.jobs] == expected
    last = read.block_numbers(EVERYBODY, max(ids) - 1)
    assert [read.block(EVERYBODY, number).jobs[-1].job_id for number in last] == [max(ids)]


async def test_a_check_changes_nothing(control: Control) -> None:
    await control.ask(replace(a_submission(""), validate_only=True))
    assert list(control.published.jobs()) == []


async def test_an_edit_raises_the_version_and_answers_with_the_job(control: Control) -> None:
    before = (await control.ask(a_submission())).job
    held = await control.ask(say.HoldJob(**an_edit(), kind=HoldKind.USER, reason="later"))
    assert (held.state, held.hold, held.hold_reason) == (JobState.HELD, HoldKind.USER, "later")
    assert held.version > before.version
    assert control.published.job(JobId(1)) == held


async def test_an_edit_of_another_version_is_a_conflict(control: Control) -> None:
    await control.ask(a_submission())
    with pytest.raises(Conflict):
        await control.ask(say.CancelJob(**an_edit(expected_version=99)))


async def test_a_cancelled_job_is_cancelled(control: Control) -> None:
    await control.ask(a_submission())
    job = await control.ask(say.CancelJob(**an_edit()))
    assert job.state is JobState.CANCELLED


async def test_a_token_lets_one_key_in_and_makes_its_node_known(control: Control) -> None:
    await control.ask(a_token())
    assert await control.ask(a_use()) == "gpu01"
    assert control.published.node(GPU01) is not None
    assert await control.ask(a_use()) == "gpu01"
    with pytest.raises(Unauthenticated):
        await control.ask(a_use(key="another"))


async def test_a_wrong_secret_and_a_revoked_token_let_nobody_in(control: Control) -> None:
    await control.ask(a_token())
    with pytest.raises(Unauthenticated):
        await control.ask(a_use(secret="guess"))
    await control.ask(say.RevokeToken(caller=ROOT, request_id="v", token_id="1"))
    with pytest.raises(Unauthenticated):
        await control.ask(a_use())
    assert control.published.node(GPU01) is None


async def test_an_expired_token_lets_nobody_in(control: Control) -> None:
    await control.ask(a_token(lifetime_s=0.0))
    with pytest.raises(Unauthenticated):
        await control.ask(a_use())


async def test_a_repeated_token_request_finds_the_first_record(control: Control) -> None:
    first = await control.ask(a_token())
    again = await control.ask(replace(a_token(), token_id="2", secret_hash=hashed("other")))
    assert again == first


async def test_a_loop_that_can_commit_nothing_more_ends_although_it_is_idle() -> None:
    loop = a_loop()
    turning = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    loop.fail(CommitFailed("the database has ended the line"))
    with pytest.raises(CommitFailed):
        await turning


async def test_a_lead_is_given_up_once_for_each_request(control: Control) -> None:
    ask = say.StepDown(caller=ROOT, request_id="down")
    epoch = await control.ask(ask)
    assert epoch == control.published.epoch
    # The next leader finds the answer, though no standby of its own is ready.
    assert await control.ask(replace(ask, found="no standby")) == epoch
    with pytest.raises(IllegalTransition, match="goes on to lead: no standby"):
        await control.ask(replace(ask, request_id="again", found="no standby"))


async def test_a_user_is_set_published_and_deleted(control: Control) -> None:
    ask = say.SetUser(
        caller=ROOT, request_id="u", name="eve", role="user", uid=7, gid=7, groups=(8,)
    )
    user = await control.ask(ask)
    assert control.published.user("eve") == user
    assert user in control.published.users()
    with pytest.raises(AlreadyExists):
        await control.ask(replace(ask, request_id="u2", name="mallory"))
    await control.ask(say.DeleteUser(caller=ROOT, request_id="x", name="eve"))
    assert control.published.user("eve") is None


async def test_a_hello_is_answered_with_a_session_that_rises(control: Control) -> None:
    await control.ask(a_token())
    await control.ask(a_use())
    facts = Registered(gpus=(Gpu(index=0, gpu_type="h100"),), boot_id="b")
    hello = say.OpenSession(node_id=GPU01, facts=facts, highest_epoch=0, reports=())
    first = await control.ask(hello)
    second = await control.ask(hello)
    assert second.session_id > first.session_id
    assert (first.heartbeat_s, first.ttl_s, first.launches) == (5.0, 20.0, ())


async def test_flags_are_set_and_cleared(control: Control) -> None:
    await control.ask(a_token())
    await control.ask(a_use())
    ask = say.SetNodeFlags(
        caller=ROOT,
        request_id="f",
        node_id=GPU01,
        set_flags=frozenset({NodeFlag.DRAINING}),
        clear_flags=frozenset(),
        reason="repair",
    )
    assert (await control.ask(ask)).flags == {NodeFlag.DRAINING}
    undo = replace(
        ask,
        request_id="g",
        set_flags=frozenset(),
        clear_flags=frozenset({NodeFlag.DRAINING}),
    )
    assert (await control.ask(undo)).flags == frozenset()


async def test_a_node_that_is_none_cannot_be_fenced(control: Control) -> None:
    with pytest.raises(NotFound):
        await control.ask(say.FenceNode(caller=ROOT, request_id="f", node_id=GPU01, reason="off"))


async def test_a_forgotten_node_is_known_no_more(control: Control) -> None:
    await control.ask(a_token())
    await control.ask(a_use())
    await control.ask(say.FenceNode(caller=ROOT, request_id="f", node_id=GPU01, reason=""))
    await control.ask(say.ForgetNode(caller=ROOT, request_id="g", node_id=GPU01))
    assert control.published.node(GPU01) is None


async def test_a_watch_tells_the_past_and_then_what_happens(control: Control) -> None:
    await control.ask(a_submission())
    source = aiter(control.watch(0))
    first = await asyncio.wait_for(anext(source), 20)
    assert first.kind == "job_submitted"
    coming = asyncio.ensure_future(_next_submission(source))
    await control.ask(a_submission("r2"))
    event = await asyncio.wait_for(coming, 20)
    assert event.job_id == 2
    assert event.seq <= control.published.last_sequence
    with suppress(AttributeError):
        await source.aclose()  # type: ignore[attr-defined] # generators only


async def _next_submission(source: Any) -> Any:
    async for event in source:
        if event.kind == "job_submitted":
            return event
    raise AssertionError("a watch never ends by itself")
