"""A hook over real daemons: what it changed is shown, also after the master was killed."""

from __future__ import annotations

import os
from pathlib import Path

from support.harness import Daemons

HOOKS = """
def on_submit(job, user, context):
    if job.name == "wild":
        raise KeyError("project")
    job.time_limit_s = min(job.time_limit_s or 7200.0, 7200.0)
    return job
"""


def settings(file: Path) -> str:
    """The hook runs in nobody's account, or in ours where we are not root."""
    whose = 'user = "nobody"' if os.getuid() == 0 else "allow_master_account = true"
    return f'\n[hooks]\nfile = "{file}"\non_submit = "closed"\ntime_limit = "30s"\n{whose}\n'


def test_a_change_is_shown_and_a_repeat_after_a_kill_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "hooks.py"
    file.write_text(HOOKS)
    told = "on_submit changed time limit from none to 2h"
    submit = ("submit", "--hold", "--request-id", "once", "--name", "tame", "--", "true")
    with Daemons(tmp_path, (), settings=settings(file)).up() as daemons:
        first = daemons.dlq(*submit)
        assert f"hook {told}" in first.err
        assert told in daemons.said("show", "1")
        assert "job_hooked" in daemons.said("events", "1")
        refused = daemons.dlq("submit", "--name", "wild", "--", "true")
        assert refused.code != 0
        assert "hook on_submit failed" in refused.err
        assert "KeyError: 'project' (line 4)" in refused.err

        daemons.kill("master")
        file.write_text(HOOKS.replace("7200.0)", "60.0)"))
        daemons.start("master")
        again = daemons.dlq(*submit)
        assert again.out == first.out
        assert f"hook {told}" in again.err
        assert told in daemons.said("show", "1")
        other = daemons.dlq("submit", "--hold", "--name", "other", "--", "true")
        assert "hook on_submit changed time limit from none to 1m" in other.err
