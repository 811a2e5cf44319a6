"""Commands of `dlq` against a master of canned answers; a file with other answers has its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_run import Dlq
from support.fake_master import FakeMaster


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    yield running
    running.stop()


@pytest.fixture
def dlq(master: FakeMaster, tmp_path: Path) -> Dlq:
    return Dlq(master.home(tmp_path / "home"))
