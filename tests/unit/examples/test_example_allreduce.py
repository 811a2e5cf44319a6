"""The all-reduce of examples/jobs: same bits everywhere, strangers refused, the dead noticed."""

import json
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest

import allreduce
from allreduce import Group, PeerLost
from support.ports import free_ports

Result = TypeVar("Result")


@pytest.fixture
def address() -> tuple[str, int]:
    return ("127.0.0.1", free_ports(1)[0])


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def on_all(
    threads: ThreadPoolExecutor, address: tuple[str, int], size: int, act: Callable[[Group], Result]
) -> list[Future[Result]]:
    """Run `act` on each rank of a group; the results in the order of the ranks."""

    def one(rank: int) -> Result:
        with allreduce.join("17.2", rank=rank, size=size, address=address) as group:
            return act(group)

    return [threads.submit(one, rank) for rank in range(size)]


def test_all_ranks_get_the_bits_of_the_sum_in_rank_order(
    threads: ThreadPoolExecutor, address: tuple[str, int]
) -> None:
    # Floating point addition does not associate: another order would give other bits.
    vectors = [np.array([0.1, 1e16]), np.array([0.2, 1.0]), np.array([0.3, -1e16])]
    results = on_all(threads, address, 3, lambda group: group.sum(vectors[group.rank]))
    expected = (vectors[0] + vectors[1] + vectors[2]).tobytes()
    assert {result.result().tobytes() for result in results} == {expected}


def test_one_rank_that_wants_to_stop_stops_all(
    threads: ThreadPoolExecutor, address: tuple[str, int]
) -> None:
    results = on_all(threads, address, 3, lambda group: group.max(int(group.rank == 1)))
    assert [result.result() for result in results] == [1, 1, 1]


def test_broadcast_brings_rank_0s_message_to_all(
    threads: ThreadPoolExecutor, address: tuple[str, int]
) -> None:
    message = bytes(range(256)) * 10_000
    results = on_all(
        threads, address, 3, lambda group: group.broadcast(b"" if group.rank else message)
    )
    assert [result.result() for result in results] == [message] * 3


def test_a_rank_that_dies_is_noticed_by_those_who_wait_for_it(
    threads: ThreadPoolExecutor, address: tuple[str, int]
) -> None:
    def act(group: Group) -> int:
        return 0 if group.rank == 1 else group.max(0)

    results = on_all(threads, address, 3, act)
    assert results[1].result() == 0
    for rank in (0, 2):
        with pytest.raises(PeerLost):
            results[rank].result()


def test_a_peer_of_another_attempt_is_refused_and_the_right_one_still_joins(
    threads: ThreadPoolExecutor, address: tuple[str, int]
) -> None:
    main = threads.submit(one_max, "17.2", 0, address)
    for name in ("17.1", "18.2"):
        assert say_hello(address, {"name": name, "rank": 1}) == b""
    assert say_hello(address, {"name": "17.2", "rank": 0}) == b""
    assert say_hello(address, ["no", "object"]) == b""
    assert threads.submit(one_max, "17.2", 1, address).result() == 1
    assert main.result() == 1


def one_max(name: str, rank: int, address: tuple[str, int]) -> int:
    with allreduce.join(name, rank=rank, size=2, address=address) as group:
        return group.max(rank)


def say_hello(address: tuple[str, int], hello: object) -> bytes:
    """What rank 0 answers to a greeting; it may not listen yet."""
    while True:
        try:
            peer = socket.create_connection(address, timeout=60)
        except ConnectionRefusedError:
            continue
        with peer:
            message = json.dumps(hello).encode()
            peer.sendall(struct.pack("!Q", len(message)) + message)
            return peer.recv(100)


def test_ranks_that_never_come_are_named(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allreduce, "JOIN_S", 0.01)
    with (
        pytest.raises(PeerLost, match=r"ranks \[1, 2\] did not come"),
        allreduce.join("17.2", rank=0, size=3, address=address),
    ):
        pass


def test_a_rank_0_that_is_not_there_is_named(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allreduce, "JOIN_S", 0.01)
    with (
        pytest.raises(PeerLost, match=r"found no rank 0 of 17\.2"),
        allreduce.join("17.2", rank=1, size=2, address=address),
    ):
        pass


def test_alone_there_is_nobody_to_wait_for(address: tuple[str, int]) -> None:
    with allreduce.join("17.2", rank=0, size=1, address=address) as group:
        group.barrier()
        assert group.sum(np.array([1.5])).tolist() == [1.5]
