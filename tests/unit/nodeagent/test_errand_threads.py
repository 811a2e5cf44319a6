"""Errands that may hang: one thread while all is quick, helpers while one hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from dlq_nodeagent.errand_threads import PATIENCE_S, ErrandThreads

MOST = 3
DEADLINE_S = 60.0


@pytest.fixture
def threads() -> Iterator[ErrandThreads]:
    made = ErrandThreads(MOST, "errand")
    yield made
    made.close()


def waits_for(event: threading.Event) -> None:
    event.wait(DEADLINE_S)


async def ended(threads: ErrandThreads) -> int:
    """Run one more errand; the number of its thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()

    def tell() -> None:
        loop.call_soon_threadsafe(done.set_result, threading.get_ident())

    threads.submit(tell)
    return await asyncio.wait_for(done, DEADLINE_S)


async def test_quick_errands_share_one_thread_and_keep_their_order(threads: ErrandThreads) -> None:
    order: list[int] = []
    for number in range(5):
        threads.submit(partial(order.append, number))
        await ended(threads)
    assert order == [0, 1, 2, 3, 4]
    assert threads.count == 1


async def test_an_errand_that_hangs_keeps_none_of_the_others_waiting(
    threads: ErrandThreads,
) -> None:
    hangs = threading.Event()
    threads.submit(partial(waits_for, hangs))
    first = await ended(threads)
    threads.submit(partial(waits_for, hangs))
    assert await ended(threads)
    assert first
    assert 1 <= threads.count <= MOST
    hangs.set()


async def test_helpers_leave_when_nothing_waits(threads: ErrandThreads) -> None:
    hangs = threading.Event()
    threads.submit(partial(waits_for, hangs))
    await ended(threads)
    hangs.set()
    for _ in range(MOST):
        await ended(threads)
    async with asyncio.timeout(DEADLINE_S):
        while threads.count > 1:
            await ended(threads)


async def test_there_are_never_more_than_the_most(threads: ErrandThreads) -> None:
    hangs = threading.Event()
    for _ in range(MOST):
        threads.submit(partial(waits_for, hangs))
    waiting = asyncio.ensure_future(ended(threads))
    async with asyncio.timeout(DEADLINE_S):
        while threads.count < MOST:  # noqa: ASYNC110 - no event tells of a helper
            await asyncio.sleep(PATIENCE_S)
    for _ in range(3):
        await asyncio.sleep(PATIENCE_S)
        assert threads.count == MOST
    assert not waiting.done()
    hangs.set()
    assert await waiting


async def test_close_drops_what_waits(threads: ErrandThreads) -> None:
    hangs, ran = threading.Event(), threading.Event()
    threads.submit(partial(waits_for, hangs))
    threads.submit(ran.set)
    threads.close()
    hangs.set()
    assert not ran.is_set()


async def test_a_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start, failures = threading.Thread.start, iter([True, True])

    def started(thread: threading.Thread) -> None:
        if thread.name == "errand" and next(failures, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    threads, done = ErrandThreads(4, "errand"), threading.Event()
    threads.submit(done.set)
    assert threads.count == 0
    assert await asyncio.to_thread(done.wait, 30.0)
    threads.close()
