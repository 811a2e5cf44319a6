"""The process that keeps the line for the user's commands, and a command that asks it."""

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dlq_cli.front import frames, line
from dlq_client.line import connection
from dlq_client.line.identity import Identity
from support.waiting import wait_until

WHO = Identity(
    key=b"k", certificate=b"c", ca=b"a", address="127.0.0.1:1", cluster="", user="", role="",
    issued_s=0.0, expires_s=0.0,
)  # fmt: skip


class ThreadChannel:
    """Answers each request with the name of the thread that made it."""

    def unary_unary(self, *_: Any, **__: Any) -> Any:
        return lambda request, timeout=None: threading.current_thread().name.encode()

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def channels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "open_channel", lambda _: ThreadChannel())
    for name in ("opener", "asking"):
        monkeypatch.setattr(connection.Connection, name, getattr(connection.Connection, name))


@pytest.fixture
def path() -> Iterator[Path]:
    """The address of a socket has 108 characters."""
    root = Path(tempfile.mkdtemp(prefix="dlqfl", dir="/tmp"))
    yield root / "line"
    shutil.rmtree(root)


@pytest.fixture
def keeper(path: Path) -> line._Keeper:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    made = line._Keeper(path)
    made._start_thread(listening)
    return made


def asked(channel: line.RelayedChannel) -> bytes:
    return bytes(channel.unary_unary("/m", bytes, bytes)(b""))


@pytest.mark.usefixtures("keeper")
def test_lines_one_after_another_need_no_thread_of_their_own(path: Path) -> None:
    names = set()
    for _ in range(50):
        with line.RelayedChannel(path, WHO) as channel:
            names.add(asked(channel))
    assert len(names) <= 2 * line._MOST_WAITING
    assert threading.main_thread().name.encode() not in names


def test_lines_at_the_same_time_are_all_served(path: Path, keeper: line._Keeper) -> None:
    with ExitStack() as opened:
        channels = [opened.enter_context(line.RelayedChannel(path, WHO)) for _ in range(20)]
        assert len({asked(channel) for channel in channels}) == 20
        assert all(channel._line is not None for channel in channels)
    wait_until(
        lambda: keeper._waiting == line._MOST_WAITING, what="the other threads end", timeout_s=60
    )


@pytest.mark.usefixtures("keeper")
def test_a_command_asks_the_keeper_from_its_own_thread(path: Path) -> None:
    line.use(path)
    with connection.Connection(WHO) as opened:
        method: Any = lambda _, timeout: threading.current_thread()  # noqa: E731
        assert opened.call(method, b"") is threading.current_thread()


def test_without_a_keeper_grpc_is_asked_apart(path: Path) -> None:
    line.use(path)
    with line.RelayedChannel(path, WHO) as channel:
        assert asked(channel) != threading.current_thread().name.encode()


@pytest.mark.usefixtures("keeper")
def test_a_request_that_ctrl_c_broke_off_leaves_no_answer_to_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = frames.receive

    def interrupted(sent: socket.socket) -> Any:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return receive(sent)  # the keeper lives in this process too

    with line.RelayedChannel(path, WHO) as channel:
        monkeypatch.setattr(line, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            asked(channel)
        assert channel._line is None
