"""The judge of the torture runs finds every kind of wrong that is planted."""

from collections.abc import Callable
from typing import Any

import pytest

from support.ledger_check import counts, judge

Story = tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]


def a_good_story() -> Story:
    """Two jobs that ran, one that was cancelled before it started."""
    promises: list[dict[str, Any]] = [
        {
            "what": "accepted",
            "request_id": f"r{n}",
            "job_id": str(n),
            "exit_code": n - 1,
            "ranks": 1,
        }
        for n in (1, 2, 3)
    ]
    promises.append({"what": "cancelled", "job_id": "3", "state": "JOB_STATE_CANCELLED"})
    ledger: list[dict[str, Any]] = [
        {"what": what, "job": str(n), "rank": "0", "attempt": "1", "fence": "1.1", "boottime_s": n}
        for n in (1, 2)
        for what in ("start", "stop")
    ]
    rows: list[dict[str, Any]] = [
        {
            "job_id": "1",
            "state": "JOB_STATE_COMPLETED",
            "exit_code": 0,
            "attempts": 1,
            "fence": "1.1",
        },
        {"job_id": "2", "state": "JOB_STATE_FAILED", "exit_code": 1, "attempts": 1, "fence": "1.1"},
        {
            "job_id": "3",
            "state": "JOB_STATE_CANCELLED",
            "exit_code": None,
            "attempts": 0,
            "fence": "",
        },
    ]
    return promises, ledger, rows


def test_a_good_story_has_nothing_wrong() -> None:
    story = a_good_story()

    assert judge(*story) == []
    assert counts(*story)["accepted"] == 3


def _lost(promises: Any, ledger: Any, rows: Any) -> None:
    del rows[0]


def _twice(promises: Any, ledger: Any, rows: Any) -> None:
    ledger.insert(1, dict(ledger[0]))


def _killed(promises: Any, ledger: Any, rows: Any) -> None:
    del ledger[1]


def _never(promises: Any, ledger: Any, rows: Any) -> None:
    del ledger[:2]


def _overlap(promises: Any, ledger: Any, rows: Any) -> None:
    ledger.append(ledger[0] | {"what": "overlap"})


def _code(promises: Any, ledger: Any, rows: Any) -> None:
    rows[1]["exit_code"] = 0


def _fence(promises: Any, ledger: Any, rows: Any) -> None:
    rows[1]["fence"] = "2.1"


def _doubled(promises: Any, ledger: Any, rows: Any) -> None:
    promises.append(promises[0] | {"job_id": "2"})


def _revived(promises: Any, ledger: Any, rows: Any) -> None:
    rows[2]["state"] = "JOB_STATE_COMPLETED"


def _stranger(promises: Any, ledger: Any, rows: Any) -> None:
    ledger.append(ledger[0] | {"job": "99"})


def _unasked(promises: Any, ledger: Any, rows: Any) -> None:
    rows.append(rows[2] | {"job_id": "4"})


@pytest.mark.parametrize(
    "plant",
    [
        _unasked,
        _lost,
        _twice,
        _killed,
        _never,
        _overlap,
        _code,
        _fence,
        _doubled,
        _revived,
        _stranger,
    ],
)
def test_a_planted_wrong_is_found(plant: Callable[..., None]) -> None:
    story = a_good_story()
    plant(*story)

    assert judge(*story) != []
