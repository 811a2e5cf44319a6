"""A hook over real daemons: what it changed is shown, also after the master was killed."""

from __future__ import annotations

import os
from pathlib import Path

from dlq.v1 import job_service_pb2 as wire
from dlq_client.jobs import Jobs
from dlq_common.text.hook_words import hook_words
from support.harness import Daemons
from support.waiting import wait_until

HOOKS = """
def on_submit(job, user, context):
    if job.name == "wild":
        raise KeyError("project")
    job.time_limit_s = min(job.time_limit_s or 7200.0, 7200.0)
    return job
"""


FOLLOWED = """
def on_start(attempt):
    return f"{attempt.key} on {attempt.gpus} GPUs"

def on_end(attempt):
    return f"{attempt.key}: {attempt.end} {attempt.exit_code}"
"""


def settings(file: Path, *hooks: str) -> str:
    """The hook runs in nobody's account, or in ours where we are not root."""
    whose = 'user = "nobody"' if os.getuid() == 0 else "allow_master_account = true"
    told = "".join(f'{hook} = "closed"\n' for hook in hooks)
    return f'\n[hooks]\nfile = "{file}"\n{told}time_limit = "30s"\n{whose}\n'


def test_a_change_is_shown_and_a_repeat_after_a_kill_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "hooks.py"
    file.write_text(HOOKS)
    told = "on_submit changed time limit from none to 2h"
    submit = ("submit", "--hold", "--request-id", "once", "--name", "tame", "--", "true")
    with Daemons(tmp_path, (), settings=settings(file, "on_submit")).up() as daemons:
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


CAPPED = """
from dlq_hooks import Refuse

def on_submit(job, user, context):
    if job.labels.get("comment") == "secret":
        return Refuse(f"no secrets, {context.owner == user.name}: {', '.join(context.changed)}")
    if job.nice == 7:
        job.environment["SITE"] = "lab"
    job.time_limit_s = min(job.time_limit_s or 7200.0, 7200.0)
    return job
"""


def test_an_update_takes_back_no_change_of_a_hook(tmp_path: Path) -> None:
    file = tmp_path / "hooks.py"
    file.write_text(CAPPED)
    with Daemons(tmp_path, (), settings=settings(file, "on_submit")).up() as daemons:
        alice = daemons.dlq
        alice("submit", "--hold", "--array", "0-1", "--", "true")
        told = "hook on_submit changed time limit from 5h to 2h"
        tried = alice("update", "1", "time_limit=5h", "--test-only")
        assert f"{told}\ndlq: this was a test: nothing is changed\n" in tried.err
        updated = alice("update", "1", "time_limit=5h", "name=other")
        assert updated.out == "job 1_[0-1]: name: true -> other\n"
        assert updated.err.count(told) == 1  # tasks that are alike are one call
        assert told in alice("events", "1_0").out
        slurm = alice("slurm", "scontrol", "update", "JobId=1_0", "TimeLimit=300")
        assert (slurm.code, slurm.err) == (0, f"scontrol: {told}\n")
        refused = alice("update", "1_0", "comment=secret", "nice=3")
        assert "refuses this update: no secrets, True: labels, nice" in refused.err
        wider = alice("update", "1_0", "nice=7").err
        assert "environment in such a job, which no update can" in wider

        with daemons.connect() as line:
            request = wire.UpdateJobRequest(request_id="once", nice=9)
            request.clear_time_limit = True
            first = Jobs(line).update_each("1_0", request)
            daemons.kill("master")
            file.write_text("def on_submit(job, user, context): return 'of the new file'")
            daemons.start("master")
            daemons.wait_for("master")
            again = Jobs(line).update_each("1_0", request)
        assert [hook_words(note) for note in first.hook_notes] == [
            "on_submit changed time limit from none to 2h"
        ]
        assert (again.hook_notes, again.changes) == (first.hook_notes, first.changes)
        assert "of the new file" in alice("update", "1_0", "nice=10").err


def test_an_end_is_told_once_over_kills_of_the_master(tmp_path: Path) -> None:
    file = tmp_path / "hooks.py"
    file.write_text(FOLLOWED)
    made = Daemons(tmp_path, ("n1",), settings=settings(file, "on_start", "on_end"))
    with made.up() as daemons:
        job = daemons.said("submit", "--parsable", "--", "false").strip()
        daemons.kill("master")
        daemons.start("master")
        end = f"{job}.1.on_end: failed 1"
        wait_until(lambda: end in daemons.said("events", job), what="the end is told")
        daemons.kill("master")
        daemons.start("master")
        more = daemons.said("submit", "--parsable", "--", "true").strip()
        end_of_more = f"{more}.1.on_end: succeeded 0"
        wait_until(lambda: end_of_more in daemons.said("events", more), what="and the next")
        faulty = tmp_path / "faulty.py"
        faulty.write_text("def on_end(attempt): return attempt.no_such_field")
        tried = daemons.dlq("admin", "hooks", "test", str(faulty), "--hook", "on_end", "--last=9")
        assert tried.code == 1
        failed = "AttributeError: 'HookAttempt' object has no attribute 'no_such_field' (line 1)"
        assert (
            f"job {more} (true) attempt 1: would be held: hook on_end failed: {failed}" in tried.out
        )
        assert f"job {job} (false) attempt 1: FAILED: {failed}\n" in tried.out
        told = daemons.said("events", job)
        assert "hook_failed" not in told
        assert told.count(end) == told.count(f"{job}.1.on_start on 1 GPUs") == 1
