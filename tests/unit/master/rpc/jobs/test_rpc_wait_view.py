"""Jobs in the way of a waiting job, as different callers hear of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_master.control.config import OTHERS
from dlq_master.control.stimuli import Caller
from dlq_master.model.jobs.person import Owner
from dlq_master.rpc.jobs.wait_view import with_owners

NAMED, NAMELESS, HIDDEN = OTHERS
OWNERS = {7: "ann@orga", 8: "bob"}


@pytest.mark.parametrize(
    ("caller", "shown", "numbers", "users"),
    [
        (Caller("eve", "user"), NAMED, ["7", "8"], ["ann@orga", "bob"]),
        (Caller("eve", "user"), NAMELESS, ["7", "8"], []),
        (Caller("bob", "user"), HIDDEN, ["8"], []),
        (Caller("olga", "operator"), HIDDEN, ["7", "8"], ["ann@orga", "bob"]),
        (Caller("ann@orga", "guest"), NAMED, ["7"], []),
    ],
)
def test_who_hears_of_which_jobs_in_the_way(
    caller: Caller, shown: str, numbers: list[str], users: list[str]
) -> None:
    def owner(job_id: int) -> Owner:
        return Owner(OWNERS[job_id], "", 0.0)

    read: Any = SimpleNamespace(others_shown=shown, owner=owner)
    (told,) = with_owners([job_pb2.WaitReason(blocking_job_ids=["7", "8"])], read, caller)
    assert (list(told.blocking_job_ids), list(told.blocking_users)) == (numbers, users)
