"""A daemon and its systemd: what is said, when, and that nothing is said where nobody listens."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_common.daemon.systemd import Service, passed_sockets
from support.fake_clock import FakeClock


class Manager:
    """The end of the socket that systemd has."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    def heard(self) -> list[str]:
        words = []
        while True:
            try:
                words.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return words

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.close()


def test_ready_and_stopping_are_told_in_systemds_words(manager: Manager) -> None:
    service = Service(FakeClock(), address=manager.address)
    service.ready("serving at head:7320")
    service.stopping()
    assert manager.heard() == ["READY=1\nSTATUS=serving at head:7320", "STOPPING=1"]


def test_an_abstract_address_is_understood() -> None:
    manager = Manager(f"@dlq-test-{os.getpid()}")
    Service(FakeClock(), address=manager.address).stopping()
    assert manager.heard() == ["STOPPING=1"]
    manager.close()


def test_a_loop_that_turns_often_beats_four_times_in_the_watchdogs_patience(
    manager: Manager,
) -> None:
    clock = FakeClock()
    service = Service(clock, address=manager.address, watchdog_s=60.0)
    for _ in range(600):
        service.alive()
        clock.advance(0.1)
    assert manager.heard() == ["WATCHDOG=1"] * 4


def test_a_loop_that_does_not_turn_says_nothing(manager: Manager) -> None:
    clock = FakeClock()
    Service(clock, address=manager.address, watchdog_s=60.0)
    clock.advance(600.0)
    assert manager.heard() == []


def test_a_beat_that_did_not_get_through_is_due_at_once_again(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    service = Service(FakeClock(), address=address, watchdog_s=60.0)
    service.alive()  # nobody is there yet
    manager = Manager(address)
    service.alive()
    assert manager.heard() == ["WATCHDOG=1"]
    manager.close()


def test_a_manager_that_does_not_read_stops_nobody(manager: Manager) -> None:
    service = Service(FakeClock(), address=manager.address)
    for _ in range(10_000):
        service.ready("x" * 1000)
    assert len(manager.heard()) < 10_000


@pytest.mark.parametrize(("watchdog_s", "waits_s"), [(60.0, 15.0), (None, 100.0)])
def test_nobody_waits_longer_than_until_the_next_beat(
    watchdog_s: float | None, waits_s: float
) -> None:
    assert Service(FakeClock(), watchdog_s=watchdog_s).patience_s(100.0) == waits_s


def test_without_systemd_nothing_happens() -> None:
    service = Service.of({}, FakeClock())
    service.ready("serving")
    service.alive()
    service.stopping()
    assert service.beat_s is None


def test_the_variables_are_taken_and_reach_no_child(manager: Manager) -> None:
    environment = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": "20000000",
        "WATCHDOG_PID": str(os.getpid()),
        "HOME": "/root",
    }
    service = Service.of(environment, FakeClock())
    assert environment == {"HOME": "/root"}
    assert service.beat_s == 5.0


@pytest.mark.parametrize(
    "environment",
    [{"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}],
)
def test_a_watchdog_that_is_not_ours_is_not_fed(environment: dict[str, str]) -> None:
    assert Service.of(environment, FakeClock()).beat_s is None


TAKES_OVER = """
import os, sys
from dlq_common.daemon.systemd import passed_sockets
os.dup2(int(sys.argv[1]), 3)
environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "login"}
(name, passed), = passed_sockets(environment).items()
connection, _ = passed.accept()
connection.sendall(f"{name} {os.get_inheritable(3)}".encode())
"""


def test_a_socket_that_systemd_holds_is_taken_over_by_its_name(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "login.sock"))
    listener.listen()
    caller = socket.socket(socket.AF_UNIX)
    caller.connect(str(tmp_path / "login.sock"))  # waits in the queue until somebody serves
    descriptor = listener.fileno()
    subprocess.run(
        [sys.executable, "-c", TAKES_OVER, str(descriptor)], pass_fds=[descriptor], check=True
    )
    assert caller.recv(100) == b"login False"
    caller.close()
    listener.close()


def test_sockets_of_another_process_are_left_alone() -> None:
    assert passed_sockets({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) == {}
    assert passed_sockets({}) == {}
