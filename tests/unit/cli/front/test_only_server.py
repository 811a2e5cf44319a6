"""One server of commands for all sessions of a user: sessions have keys of their own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dlq_cli.front import server

FIRST, NEXT = "a" * 32, "b" * 32


def used(directory: Path, key: str, ago_s: float) -> None:
    """The files of a server with this key, whose last call is so long ago."""
    for ending in ("sock", "lock"):
        (directory / f"{key}.{ending}").touch()
    at_s = time.time() - ago_s
    os.utime(directory / f"{key}.lock", (at_s, at_s))


def test_a_server_in_use_keeps_its_place(tmp_path: Path) -> None:
    used(tmp_path, FIRST, ago_s=server.IN_USE_S / 2)
    held = server.the_only_one(tmp_path, FIRST)
    assert held is not None
    assert server.the_only_one(tmp_path, NEXT) is None
    assert (tmp_path / f"{FIRST}.sock").exists()
    os.close(held)


def test_the_newest_takes_over_from_one_that_nobody_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(tmp_path, FIRST, ago_s=2 * server.IN_USE_S)
    held = server.the_only_one(tmp_path, FIRST)
    assert held is not None

    def end(_seconds: float) -> None:
        """As the former one does when it sees that its socket is gone."""
        assert not (tmp_path / f"{FIRST}.sock").exists()
        os.close(held)

    monkeypatch.setattr(time, "sleep", end)
    taken = server.the_only_one(tmp_path, NEXT)
    assert taken is not None
    assert os.pread(taken, 64, 0).decode() == NEXT
    os.close(taken)


def test_one_that_does_not_end_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TAKE_OVER_S", 0.0)
    used(tmp_path, FIRST, ago_s=2 * server.IN_USE_S)
    held = server.the_only_one(tmp_path, FIRST)
    assert held is not None
    assert server.the_only_one(tmp_path, NEXT) is None
    os.close(held)
