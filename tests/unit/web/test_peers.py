"""Whose connection it is: this user's, root's, or a stranger's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dlq_web.door import peers

THEIRS, OURS = ("127.0.0.1", 40_000), ("127.0.0.1", 7330)
LINE = "   1: {client} {server} {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 1 1\n"
CONNECTS = (
    "import os, socket, sys\n"
    "''.encode('idna')  # loaded while that is allowed\n"
    "os.setuid(65534)\n"
    "line = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
    "line.recv(1)\n"
)


def table(path: Path, state: str, uid: int) -> Path:
    """A table of the kernel's with one connection, seen from both of its ends."""
    client, server = peers._entry(THEIRS), peers._entry(OURS)
    file = path / "tcp"
    file.write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        + LINE.format(client=server, server=client, state="01", uid=1001)
        + LINE.format(client=client, server=server, state=state, uid=uid)
    )
    return file


@pytest.mark.parametrize(
    ("state", "uid", "stranger"),
    [
        ("01", 1001, False),
        ("05", 1001, False),  # has said all, and waits for the answer
        ("01", 1002, True),
        ("01", 0, False),
        ("04", 0, True),  # its process has gone, so nobody knows whose it was
    ],
)
def test_the_user_and_root_are_no_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, uid: int, stranger: bool
) -> None:
    monkeypatch.setattr(peers, "TABLE", table(tmp_path, state, uid))
    monkeypatch.setattr(os, "getuid", lambda: 1001)
    assert peers.is_stranger(THEIRS, OURS) is stranger
    assert peers.is_stranger(("127.0.0.1", 40_001), OURS)


def test_where_the_kernel_does_not_tell_the_secrets_alone_protect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "TABLE", tmp_path / "none")
    assert not peers.is_stranger(THEIRS, OURS)
    assert peers.is_stranger(None, OURS)


def test_a_connection_of_our_own_is_known() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        assert not peers.is_stranger(client.getsockname(), listening.getsockname())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_connection_of_another_user_is_a_stranger_s() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        other = subprocess.Popen([sys.executable, "-c", CONNECTS, str(port)])
        try:
            listening.settimeout(30.0)
            line, theirs = listening.accept()
            with line:
                assert peers.is_stranger(theirs, listening.getsockname())
        finally:
            other.kill()
            other.wait()
