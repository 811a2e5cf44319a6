"""A rule of [[idle]] over real daemons: agents sample virtual GPUs whose use a file tells."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.fake_jupyter import install_jupyter
from support.harness import BIN, Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/master/control/attempts/test_control_idle.py"),
]

RULE = """
[[idle]]
window = "10s"
action = "cancel"
dry_run = false
exempt_jobs = ["spared"]
"""
# The rule of deploy/config/master.toml for notebooks, in seconds.
NOTEBOOKS = """
[[idle]]
window = "1h"
interactive_window = "10s"
action = "cancel"
dry_run = false
"""


def script(percent: int) -> str:
    """All eight GPUs are used so much."""
    return "".join(f"{gpu}|utilization|{percent}\n{gpu}|power|90\n" for gpu in range(8))


@contextmanager
def cluster(place: Path, rules: str, state: Path) -> Iterator[Daemons]:
    """A master with these rules, and a node whose GPUs do what `state` says."""
    daemons = Daemons(place, ("n1",), settings=rules)
    with daemons.up():
        daemons.stop("n1")
        config = place / "n1.toml"
        made = config.read_text().replace('"fake:8xH100-80GB"', f'"fake:8xH100-80GB@{state}"')
        config.write_text(f'{made}\n[gpus]\nfigures_every = "1s"\nlook_every = "1s"\n')
        daemons.start("n1")
        yield daemons


def test_an_idle_job_is_cancelled_with_its_reason_and_a_spared_one_is_not(tmp_path: Path) -> None:
    state = tmp_path / "gpus"
    state.write_text(script(95))
    with cluster(tmp_path, RULE, state) as daemons:
        submit = ("submit", "--parsable", "--gpus", "2")
        spared = daemons.said(*submit, "--name", "spared", "--", "sleep", "600").split()[-1]
        job = daemons.said(*submit, "--", "sleep", "600").split()[-1]

        wait_until(lambda: "job_ran" in daemons.said("events", job), what="the job runs")
        wait_until(lambda: "job_ran" in daemons.said("events", spared), what="the other runs")
        assert "job_idle" not in daemons.said("events", job)
        state.write_text(script(0))
        wait_until(
            lambda: "job_cancelled" in daemons.said("events", job),
            what="it is cancelled",
            timeout_s=120.0,
        )
        assert "below the 5 % of rule 1 of [[idle]]" in daemons.said("events", job)
        assert "job_idle" not in daemons.said("events", spared)


def test_a_notebook_whose_page_is_open_and_asks_on_keeps_no_gpu(tmp_path: Path) -> None:
    """Its command lives, and a browser asks all the time; its kernel does nothing on the GPU."""
    state = tmp_path / "gpus"
    state.write_text(script(95))
    install_jupyter(tmp_path)
    with cluster(tmp_path, NOTEBOOKS, state) as daemons:
        path = f"PATH={tmp_path}:{os.environ['PATH']}"
        words = (str(BIN / "dlq"), "notebook", "-G", "1", "--env", path)
        batch = daemons.said("submit", "--parsable", "-G", "1", "--", "sleep", "600").split()[-1]
        with daemons.begun(*words, stdin=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            found = re.search(rb"job (\d+) is queued", process.stderr.readline())
            assert found
            job = found[1].decode()
            url = urlsplit(process.stdout.readline().decode().strip())
            page = http.client.HTTPConnection(str(url.hostname), url.port, timeout=60.0)
            answers = 0

            def asks() -> bool:
                """One question on the line of the page; whether the notebook is over."""
                nonlocal answers
                try:
                    page.request("GET", f"{url.path}?{url.query}")
                    answers += page.getresponse().read().startswith(b"notebook of job")
                except (OSError, http.client.HTTPException):
                    return True
                return False

            with closing(page):
                assert not asks()
                state.write_text(script(0))
                wait_until(asks, what="the notebook ends under its open page", timeout_s=120.0)
            assert answers > 10
            assert process.wait(timeout=60.0) != 0
            assert b"below the 5 % of rule 1 of [[idle]]" in process.stderr.read()
        assert "below the 5 % of rule 1 of [[idle]]" in daemons.said("events", job)
        wait_until(lambda: "cancelled" in daemons.said("status", job), what="it has ended")
        assert "running" in daemons.said("status", batch)


FIRST_STEP = """
[first_step]
window = "10s"
action = "cancel"
dry_run = false
exempt_jobs = ["spared"]
"""


@pytest.mark.long("unit/master/control/trials/test_control_first_steps.py")
def test_a_job_that_makes_no_first_step_is_cancelled_and_shown_and_others_are_not(
    tmp_path: Path,
) -> None:
    with Daemons(tmp_path, ("n1",), settings=FIRST_STEP).up() as daemons:
        submit = ("submit", "--parsable", "--gpus", "2")
        steps = (*submit, "--steps", "100")
        spared = daemons.said(*steps, "--name", "spared", "--", "sleep", "601").split()[-1]
        silent = daemons.said(*submit, "--", "sleep", "602").split()[-1]
        hung = daemons.said(*steps, "--", "sleep", "600").split()[-1]
        wait_until(
            lambda: "job_cancelled" in daemons.said("events", hung),
            what="it is cancelled",
            timeout_s=120.0,
        )
        told = daemons.said("events", hung)
        assert "job_stalled" in told
        assert "after its start, where [first_step] allows 10 s" in told
        for other in (spared, silent):
            assert "job_stall" not in daemons.said("events", other)
