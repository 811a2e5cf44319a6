"""The master is killed around the commit of another policy: it stands whole or not at all, and is
asked once.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli_run import Dlq
from support.harness import Daemons

pytestmark = pytest.mark.long(
    "unit/master/control/placement/test_control_policy.py",
)


def decides(daemons: Daemons) -> str:
    """The policy that decides, by name."""
    shown = json.loads(daemons.said("admin", "policy", "show", "--json"))
    name: str = shown["policy"]["policy"]
    return name


def test_a_policy_is_set_whole_or_not_at_all(tmp_path: Path) -> None:
    setting = ("admin", "policy", "set", "srtf", "-s", "place=spread", "-y")
    with Daemons(tmp_path, ()).up() as daemons:
        dlq = Dlq(daemons.root / "home", daemons.environment())
        daemons.stop("master")
        # Its first commit in the loop is that of the new policy: nothing else happens without
        # nodes.
        for failpoint in ("before_commit", "after_commit"):
            daemons.start("master", DLQ_DEBUG__FAILPOINT=f"{failpoint}:1")
            daemons.wait_for("master")
            assert decides(daemons) == "best-effort", "nothing was set by who died before"
            while daemons.is_alive("master"):  # the commit may be of a later try
                assert dlq(*setting, patience_s=1.0).code != 0
            daemons.wait_for_death("master")
        daemons.start("master")
        daemons.wait_for("master")
        assert decides(daemons) == "srtf", "it was on disk"
        daemons.said(*setting)
        assert decides(daemons) == "srtf"
        daemons.said("admin", "policy", "reset", "-y")
        assert decides(daemons) == "best-effort"
