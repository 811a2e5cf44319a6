"""What `dlq-master reset-clock` does to the rows of a master that ran while the clock was ahead."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dlq_master.store.port import DatabaseInUse
from dlq_master.store.sqlite.clock_reset import reset_clock
from dlq_master.store.sqlite.open import claim, create_database, open_database, write
from dlq_master.store.tables.codec import opened

NOW_S = 1_800_000_000.0
AHEAD_S = 31_536_000.0
HOUR_S, SLOT_S = 3600.0, 1200.0

OLD = {
    "submit_time_s": NOW_S - 500.0,
    "begin_time_s": NOW_S + AHEAD_S + 7_000.0,  # what its user chose
    "start_time_s": NOW_S + AHEAD_S - 100.0,
    "total_gpu_s": NOW_S + AHEAD_S,  # so much service, and no instant
    "time_limit_s": 3600.0,
}
NEW = {
    "submit_time_s": NOW_S + AHEAD_S - 300.0,
    "deadlines": [{"due_s": NOW_S + AHEAD_S + 7_000.0}],
    "slots": [[round((NOW_S + AHEAD_S) / SLOT_S) + 2, round((NOW_S + AHEAD_S) / SLOT_S) + 4]],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two jobs, of before the clock was wrong and of after; the newest event is of AHEAD_S from
    now.
    """
    path = tmp_path / "dlq.db"
    create_database(path)
    db = open_database(path)
    with write(db):
        for job_id, body in ((1, OLD), (2, NEW)):
            db.execute(
                "INSERT INTO jobs VALUES (?, 'ada', 'train', 'default', 'queued', 1, ?, NULL, ?)",
                [job_id, body["submit_time_s"], json.dumps(body)],
            )
        for sequence, time_s in (
            (1, NOW_S - 500.0),
            (2, NOW_S + AHEAD_S - 300.0),
            (3, NOW_S + AHEAD_S),
        ):
            db.execute(
                "INSERT INTO journal (sequence, time_s, kind, cause, actor, data) VALUES (?, ?, "
                "'x', '', '', '{}')",
                [sequence, time_s],
            )
        db.execute("INSERT INTO meta VALUES ('clock', '{}')")
    db.close()
    return path


def rows(path: Path, sql: str) -> list[Any]:
    db = open_database(path)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def reset(path: Path) -> float:
    return reset_clock(path, NOW_S, HOUR_S, SLOT_S, "root").shift_s


def test_what_lies_in_the_future_goes_back_and_the_past_stays(path: Path) -> None:
    shift_s = reset(path)
    assert 0.0 <= shift_s - AHEAD_S < SLOT_S
    assert shift_s % SLOT_S == 0.0
    times = [time_s for (time_s,) in rows(path, "SELECT time_s FROM journal ORDER BY sequence")]
    assert times[:3] == [
        NOW_S - 500.0,
        NOW_S + AHEAD_S - 300.0 - shift_s,
        NOW_S + AHEAD_S - shift_s,
    ]
    assert max(times) == times[3] == NOW_S  # from here the next master goes on
    assert rows(path, "SELECT value FROM meta WHERE key = 'clock'") == []


def test_what_the_user_of_an_older_job_chose_stays_and_what_was_reckoned_goes_back(
    path: Path,
) -> None:
    shift_s = reset(path)
    old, new = (
        opened(body, "job") for (body,) in rows(path, "SELECT body FROM jobs ORDER BY job_id")
    )
    assert old == OLD | {"start_time_s": OLD["start_time_s"] - shift_s}
    assert new["submit_time_s"] == NEW["submit_time_s"] - shift_s  # type: ignore[operator]
    assert new["deadlines"][0]["due_s"] == NOW_S + AHEAD_S + 7_000.0 - shift_s
    begin = round((NOW_S + AHEAD_S - shift_s) / SLOT_S) + 2
    assert new["slots"] == [[begin, begin + 2]]


def test_a_second_reset_changes_nothing(path: Path) -> None:
    reset(path)
    before = rows(path, "SELECT * FROM jobs")
    assert reset(path) == 0.0
    assert rows(path, "SELECT * FROM jobs") == before


def test_a_master_that_runs_keeps_its_database(path: Path) -> None:
    held = claim(path)
    with pytest.raises(DatabaseInUse):
        reset(path)
    os.close(held)
