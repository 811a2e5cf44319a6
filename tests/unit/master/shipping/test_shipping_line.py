"""A place on another host: the same as a directory, and a line that may break at any moment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_master.shipping.chain import rebuild
from dlq_master.shipping.line import RemotePlace
from support.shipped_site import ShippedSite, content_of

RECEIVE = """
import sys
from pathlib import Path
from dlq_master.shipping.line import receive
receive(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
"""
HANGS = "import signal; signal.pause()"


def line_to(path: Path) -> RemotePlace:
    return RemotePlace([sys.executable, "-c", RECEIVE, str(path)])


@pytest.fixture
def line(tmp_path: Path) -> Iterator[RemotePlace]:
    (tmp_path / "there").mkdir()
    line = line_to(tmp_path / "there")
    yield line
    line.close()


def test_a_master_is_shipped_over_a_line_that_breaks(
    tmp_path: Path, line: RemotePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = ShippedSite(tmp_path)
    place, site.place = site.place, line  # type: ignore[assignment]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    shipper = site.shipper()
    for _ in range(3):
        site.commit(3)
        assert shipper.cycle().failure == ""
        assert line._process is not None
        line._process.kill()
        line._process.wait()
        site.commit()
        with pytest.raises(OSError, match="the line broke"):
            shipper.cycle()
    assert shipper.cycle().failure == ""
    rebuild(place, tmp_path / "rebuilt.db")
    assert content_of(tmp_path / "rebuilt.db") == site.content()


def test_it_reads_creates_and_drops_as_a_directory_does(
    tmp_path: Path, line: RemotePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    name = "e000000000001/owner"
    assert line.read(name) is None
    assert line.create(name, b"one")
    assert not line.create(name, b"two")
    assert line.read(name) == b"one"
    line.append("e000000000001/audit.jsonl", 0, b"x" * 3_000_000)
    line.append("e000000000001/audit.jsonl", 3_000_000, b"y")
    assert (tmp_path / "there/e000000000001/audit.jsonl").stat().st_size == 3_000_001
    assert line.names("") == ["e000000000001"]
    assert line.names("e000000000001") == ["audit.jsonl", "owner"]
    line.drop("e000000000001")
    assert line.names("") == []
    for bad in ("../x", "e000000000001/../x", "/etc/passwd", "", "e1/x"):
        with pytest.raises(OSError, match="is no name of a shipped file"):
            line.read(bad)
    (tmp_path / "there").rmdir()
    with pytest.raises(FileNotFoundError):
        line.names("")


def test_a_program_that_hangs_is_killed() -> None:
    line = RemotePlace([sys.executable, "-S", "-c", HANGS], patience_s=0.2)
    with pytest.raises(OSError, match="the line broke"):
        line.names("")
    assert line._process is None
    with pytest.raises(FileNotFoundError):
        RemotePlace(["/nonexistent/program"]).names("")
