"""The wall of a server for all: its line outlives certificates, a command tells its address."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from dlq_common.identity.acting import ActsFor
from dlq_web.daemon import main
from dlq_web.door.wall import WALL_FILE, WallToken
from dlq_web.line import standing
from dlq_web.line.standing import StandingLine
from support.fake_clock import FakeClock

CONFIG = """[page]
origin = "http://localhost:7330"
[service]
state_dir = "{home}"
"""


class RecordedLine:
    """Notes who is asked, as whom."""

    made: list[RecordedLine]

    def __init__(self, identity: Any, _clock: Any, user: ActsFor) -> None:
        self.identity, self.user, self.closed = identity, user, False
        self.made.append(self)

    async def call(self, *_asked: Any) -> str:
        return f"{self.identity.serial} for {self.user.name}"

    async def close(self) -> None:
        self.closed = True


async def test_a_renewed_certificate_is_dialled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    RecordedLine.made = []
    monkeypatch.setattr(standing, "MasterLine", RecordedLine)
    service: Any = SimpleNamespace(identity=SimpleNamespace(serial="first"))
    line, nothing = StandingLine(service, "bob", FakeClock()), SimpleNamespace()
    asked: Any = (nothing, nothing)
    assert [await line.call(*asked) for _ in range(2)] == ["first for bob"] * 2
    service.identity = SimpleNamespace(serial="second")
    assert await line.call(*asked) == "second for bob"
    assert [one.closed for one in RecordedLine.made] == [True, False]
    await line.close()
    assert RecordedLine.made[1].closed


@pytest.mark.parametrize(("wall", "code"), [("", 1), ('[wall]\nuser = "bob"\n', 0)])
def test_the_command_prints_the_address_where_a_user_is_named(
    tmp_path: Path, wall: str, code: int
) -> None:
    path = tmp_path / "web.toml"
    path.write_text(CONFIG.format(home=tmp_path) + wall)
    told = CliRunner().invoke(main, ["wall", "--config", str(path)])
    assert told.exit_code == code
    if code == 0:
        assert told.stdout.strip() == f"http://localhost:7330/wall#{WallToken(tmp_path).made()}"
        assert CliRunner().invoke(main, ["wall", "--config", str(path), "--close"]).exit_code == 0
    assert not (tmp_path / WALL_FILE).exists()
