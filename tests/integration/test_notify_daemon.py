"""`dlq-notify` in front of a master's real door, with a fake loop behind, and a program that is
told.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_service_pb2
from dlq.v1 import notify_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq.v1.notify_service_pb2_grpc import NotifyServiceStub
from dlq_client.line.identity import certified, save_identity
from dlq_common.daemon.systemd import Service
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import JobState
from dlq_notify.config import NotifyConfig, NotifySection, WebSection
from dlq_notify.daemon import NotifyDaemon
from dlq_notify.line import NotifierLine
from dlq_notify.sending import Sending
from dlq_notify.store import NotifyStore
from dlq_notify.targets.guarded import GuardedCaller
from dlq_notify.targets.webhook import Webhook
from support.notify_site import WebReceiver, web_receiver
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house

pytestmark = pytest.mark.integration

Condition = Callable[[], bool]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
def web() -> Iterator[WebReceiver]:
    with web_receiver() as receiver:
        yield receiver


class Notifier:
    """The daemon, stepped by the test; its state directory outlives it."""

    def __init__(self, house: RpcHouse, root: Path, web: WebReceiver) -> None:
        self.house, self.root = house, root
        root.mkdir(mode=0o700, exist_ok=True)
        self.config = NotifyConfig(
            notify=replace(NotifySection(), state_dir=root, gather=0.0),  # type: ignore[arg-type]
            web=WebSection(hosts=(f"receiver.test:{web.port}",), private_hosts=("receiver.test",)),
        )
        key, certificate = house.certificate("nina", Role.NOTIFIER)
        address = f"127.0.0.1:{house.server.api_port}"
        identity = certified(key, certificate, house.authority.certificate_pem(), address)
        save_identity(root / "identity", identity)

    @contextmanager
    def up(self) -> Iterator[NotifyDaemon]:
        """A new process, as far as its memory goes. To be used in one thread."""
        clock, settings = self.house.clock, self.config
        line = NotifierLine(self.root / "identity", self.root / "no-broker", clock)
        store = NotifyStore(self.root / "notify.db")
        targets = {"webhook": Webhook(GuardedCaller(settings.web, _loopback), clock)}
        rng = random.Random(1)
        sending = Sending(store, settings.notify, targets, clock, rng, "lab", line.output)
        daemon = NotifyDaemon(settings, store, line, sending, clock, Service(clock))
        try:
            yield daemon
        finally:
            if daemon._reader is not None:
                daemon._reader.stop()
            line.close()
            sending.close()
            store.close()

    async def runs(self, *conditions: Condition) -> None:
        """Step until each condition has held, one after another; what fails is tried again."""
        await asyncio.to_thread(self._run, conditions)

    def _run(self, conditions: tuple[Condition, ...]) -> None:
        with self.up() as daemon:
            for condition in conditions:
                until_s = self.house.clock.boottime_s() + DEADLINE_S
                while not condition():
                    assert self.house.clock.boottime_s() < until_s
                    daemon.step()


def _loopback(_host: str, port: int, **_: object) -> list[Any]:
    return [(2, 1, 6, "", ("127.0.0.1", port))]


async def add(house: RpcHouse, web: WebReceiver, name: str = "alice", **more: Any) -> str:
    rule = wire.NotifyRule(target="webhook", address=web.url, events=["failed"], **more)
    role = Role.OPERATOR if name == "olga" else Role.USER
    stub: Any = NotifyServiceStub(house.channel_as(name, role))
    answer = await stub.AddNotifyRule(
        wire.AddNotifyRuleRequest(request_id=f"{name}-rule", rule=rule), timeout=DEADLINE_S
    )
    return str(answer.rule.rule_id)


async def fail_a_job(house: RpcHouse, name: str = "alice") -> str:
    request = job_service_pb2.SubmitJobRequest(request_id=f"{len(house.control.published.journal)}")
    request.spec.command.append("/bin/false")
    request.spec.resources.gpu_count = 1
    stub: Any = JobServiceStub(house.channel_as(name, Role.USER))
    job_id = JobId(int((await stub.SubmitJob(request, timeout=DEADLINE_S)).job.job_id))
    jobs = house.control.published.all_jobs
    jobs[job_id] = jobs[job_id]._replace(state=JobState.FAILED, end_time_s=house.clock.now_s())
    house.control.note("job_failed", job_id=job_id)
    return str(job_id)


def told(web: WebReceiver) -> list[list[str]]:
    """The jobs of each call."""
    return [[one["job_id"] for one in json.loads(body)["events"]] for _, _, body in web.calls]


async def test_what_happens_while_it_is_away_is_told_later_and_nothing_twice(
    house: RpcHouse, web: WebReceiver, tmp_path: Path
) -> None:
    notifier = Notifier(house, tmp_path / "notify", web)
    await add(house, web)
    before = await fail_a_job(house)
    await notifier.runs(lambda: _cursor(notifier) is not None)
    first = await fail_a_job(house)
    await notifier.runs(lambda: len(web.calls) == 1)
    second = await fail_a_job(house)
    await notifier.runs(lambda: len(web.calls) == 2)
    await notifier.runs(lambda: _cursor(notifier) == house.control.published.last_sequence)
    assert told(web) == [[first], [second]]
    assert before not in (first, second), "it begins with the present"


async def test_a_user_who_is_removed_hears_nothing_more(
    house: RpcHouse, web: WebReceiver, tmp_path: Path
) -> None:
    notifier = Notifier(house, tmp_path / "notify", web)
    await add(house, web)
    await add(house, web, "bob")
    await notifier.runs(lambda: _cursor(notifier) is not None)
    house.control.published.all_notify_rules = {
        key: rule
        for key, rule in house.control.published.all_notify_rules.items()
        if rule.user == "bob"
    }
    house.control.note("user_deleted", data={"user": "alice"})
    await fail_a_job(house)
    other = await fail_a_job(house, "bob")
    await notifier.runs(lambda: bool(web.calls))
    assert told(web) == [[other]]


async def test_a_master_from_an_older_copy_is_followed_from_its_end(
    house: RpcHouse, web: WebReceiver, tmp_path: Path
) -> None:
    notifier = Notifier(house, tmp_path / "notify", web)
    rule = await add(house, web, "olga")
    rules = house.control.published.all_notify_rules
    rules[rule] = rules[rule]._replace(events=("events_lost",), created_time_s=0.0)
    await notifier.runs(lambda: _cursor(notifier) is not None)
    with NotifyStoreOf(notifier) as store, store.write():
        store.set_cursor(4_711)
    await notifier.runs(lambda: bool(web.calls))
    ((_, _, body),) = web.calls
    assert "restored from a copy" in json.loads(body)["text"]
    assert _cursor(notifier) == house.control.published.last_sequence


async def test_events_that_were_cut_are_said_to_be_lost_once(
    house: RpcHouse, web: WebReceiver, tmp_path: Path
) -> None:
    notifier = Notifier(house, tmp_path / "notify", web)
    rule = await add(house, web, "olga")
    rules = house.control.published.all_notify_rules
    rules[rule] = rules[rule]._replace(events=("events_lost", "failed"), user="olga")
    for _ in range(9):
        house.control.note("master_started")
    with NotifyStoreOf(notifier) as store, store.write():
        store.set_cursor(2)
    house.control.published.journal_horizon = 5
    await notifier.runs(lambda: bool(web.calls))
    await notifier.runs(lambda: _cursor(notifier) == house.control.published.last_sequence)
    ((_, _, body),) = web.calls
    assert "were cut from the journal" in json.loads(body)["text"]


async def test_a_full_disk_loses_nothing(
    house: RpcHouse, web: WebReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier = Notifier(house, tmp_path / "notify", web)
    await add(house, web)
    await notifier.runs(lambda: _cursor(notifier) is not None)
    job_id, full = await fail_a_job(house), [True]
    set_cursor = NotifyStore.set_cursor

    def refused(store: NotifyStore, cursor: int) -> None:
        if full and full.pop():
            raise sqlite3.OperationalError("database or disk is full")
        set_cursor(store, cursor)

    monkeypatch.setattr(NotifyStore, "set_cursor", refused)

    def go_on() -> None:
        with notifier.up() as daemon:
            faults = 0
            while not web.calls:
                try:
                    daemon.step()
                except sqlite3.OperationalError:
                    faults += 1
            assert faults == 1

    await asyncio.to_thread(go_on)
    assert told(web) == [[job_id]]


class NotifyStoreOf:
    """The database of a notifier that is not up."""

    def __init__(self, notifier: Notifier) -> None:
        self.store = NotifyStore(notifier.root / "notify.db")

    def __enter__(self) -> NotifyStore:
        return self.store

    def __exit__(self, *_: object) -> None:
        self.store.close()


def _cursor(notifier: Notifier) -> int | None:
    with NotifyStoreOf(notifier) as store:
        return store.cursor
