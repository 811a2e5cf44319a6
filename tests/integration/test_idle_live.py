"""A rule of [[idle]] over real daemons: agents sample virtual GPUs whose use a file tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.harness import Daemons
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


def script(percent: int) -> str:
    """All eight GPUs are used so much."""
    return "".join(f"{gpu}|utilization|{percent}\n{gpu}|power|90\n" for gpu in range(8))


def test_an_idle_job_is_cancelled_with_its_reason_and_a_spared_one_is_not(tmp_path: Path) -> None:
    state = tmp_path / "gpus"
    state.write_text(script(95))
    daemons = Daemons(tmp_path, ("n1",), settings=RULE)
    with daemons.up():
        daemons.stop("n1")
        config = tmp_path / "n1.toml"
        made = config.read_text().replace('"fake:8xH100-80GB"', f'"fake:8xH100-80GB@{state}"')
        config.write_text(f'{made}\n[gpus]\nfigures_every = "1s"\nlook_every = "1s"\n')
        daemons.start("n1")
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
