"""Files for DCGM's exporter by a real agent: they outlive a killed agent, and go with the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/nodeagent/devices/test_job_mapping.py"),
]


def told(directory: Path) -> set[str]:
    """What the files say, whichever GPUs they are of."""
    return {one.read_text() for one in directory.glob("[0-9]*")} if directory.exists() else set()


def test_files_follow_a_job_over_a_killed_agent(tmp_path: Path) -> None:
    directory = tmp_path / "jobs"
    daemons = Daemons(tmp_path, ("n1",))
    with daemons.up():
        daemons.stop("n1")
        config = tmp_path / "n1.toml"
        config.write_text(f'{config.read_text()}\n[gpus]\njob_mapping = "{directory}"\n')
        daemons.start("n1")
        job = daemons.said("submit", "--parsable", "--gpus", "2", "--", "sleep", "600").split()[-1]
        wait_until(lambda: told(directory) == {f"{job}\n"}, what="the job has files")
        assert len([*directory.iterdir()]) == 2
        daemons.kill("n1")
        assert told(directory) == {f"{job}\n"}
        (directory / "7").write_text("9\n")
        daemons.start("n1")
        wait_until(lambda: not (directory / "7").exists(), what="an old file is gone")
        assert told(directory) == {f"{job}\n"}
        daemons.said("cancel", job)
        wait_until(lambda: told(directory) == set(), what="the files are gone")
