"""A master that fails ever again ends, but not where a failpoint makes it fail on purpose."""

from __future__ import annotations

import pytest

from dlq_common.errors import DlqError
from dlq_master import serving
from dlq_master.control.config import DebugConfig, MasterConfig
from dlq_master.control.loop.failpoints import OnPurpose
from dlq_master.control.loop.incidents import HandlerFailed, Incident

INCIDENT = Incident("i1", "HoldJob", "user:mallory", "r1", "a.py:1", "a fault", 1.0, 1)
STAGGER, STUMBLE = "stagger:2@user:mallory", "stumble:2@user:mallory"
MANY = serving.MOST_FAULTS + 5


class Faults:
    """In the place of a whole master: so many fail, and the next one leaves in order."""

    def __init__(self, cause: type[Exception]) -> None:
        self._cause = cause
        self.begun = 0

    async def serve(self, *_: object, **__: object) -> bool:
        self.begun += 1
        if self.begun <= MANY:
            raise HandlerFailed(INCIDENT) from self._cause("a fault")
        return False


@pytest.mark.parametrize(
    ("failpoint", "cause", "goes_on"),
    [
        (STAGGER, OnPurpose, True),
        (STAGGER, ValueError, False),
        (STUMBLE, OnPurpose, False),
        ("", ValueError, False),
    ],
)
def test_many_faults_end_the_master_unless_it_staggers_on_purpose(
    monkeypatch: pytest.MonkeyPatch, failpoint: str, cause: type[Exception], goes_on: bool
) -> None:
    faults = Faults(cause)
    monkeypatch.setattr(serving, "serve", faults.serve)
    monkeypatch.setattr(serving, "pin", lambda: None)
    config = MasterConfig(debug=DebugConfig(failpoint=failpoint))
    if goes_on:
        serving.serve_until_stopped(config, None)
        assert faults.begun == MANY + 1
        return
    with pytest.raises(DlqError, match="times within a minute"):
        serving.serve_until_stopped(config, None)
    assert faults.begun == serving.MOST_FAULTS
