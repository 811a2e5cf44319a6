"""A test that fails beside daemons shows what they have written."""

from pathlib import Path

import pytest

from support.daemon_logs import SHOWN_BYTES, ends_of_logs, shown_on_failure


def test_the_ends_of_logs_are_shown_as_they_are_by_then(tmp_path: Path) -> None:
    log = tmp_path / "n1.log"
    with shown_on_failure(lambda: [log, tmp_path / "never-started.log"]):
        assert ends_of_logs() == []
        log.write_text("a" * SHOWN_BYTES + "the end")
        ((name, end),) = ends_of_logs()
        assert (name, len(end), end[-7:]) == ("end of n1.log", SHOWN_BYTES, "the end")
    assert ends_of_logs() == []


def test_who_fails_in_the_block_carries_them(tmp_path: Path) -> None:
    log = tmp_path / "master.log"
    log.write_text("cannot listen")
    with pytest.raises(ValueError, match="x") as failed, shown_on_failure(lambda: [log]):
        raise ValueError("x")
    assert failed.value.__notes__ == ["--- end of master.log ---\ncannot listen"]
    assert ends_of_logs() == []
