"""The script of a pilot, with a program in the agent's place: what it leaves and removes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlq_master.control.pool_config import PoolConfig
from dlq_master.providers.port import MachineWish
from dlq_master.providers.slurm import SlurmProvider
from support.waiting import wait_until

pytestmark = pytest.mark.integration
AGENT = """\
#!/bin/sh
case $1 in
join) cat >"$0.token"; for word; do state=$word; done; echo key >"$state/identity.key" ;;
run) exec sleep 1000 ;;
esac
"""
Begin = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Starts pilots, each as a job of its own; killed at the end."""
    agent = tmp_path / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    pool = PoolConfig(
        "spot", "slurm", "H100", 8, 10.0, pilot=str(agent), token_dir=str(tmp_path / "tokens")
    )
    wish = MachineWish(
        request_id="r", pool="spot", node_id="spot-1", gpu_type="H100", gpu_count=8,
        join_address="127.0.0.1:1", token="secret",
    )  # fmt: skip
    script = tmp_path / "pilot.sh"

    def call(_: SlurmProvider, *words: str, text: str = "") -> str:
        if words[0] == "sh":
            subprocess.run(words, input=text, text=True, check=True)
        if words[0] != "sbatch":
            return ""
        script.write_text(text)
        return "17"

    monkeypatch.setattr(SlurmProvider, "_call", call)
    begun: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        SlurmProvider(pool).start(wish)
        env = os.environ | {"TMPDIR": str(tmp_path), "SLURM_JOB_ID": "17"}
        begun.append(subprocess.Popen(["sh", script], env=env, start_new_session=True))
        wait_until(lambda: len(keys(tmp_path)) > 0, what="it has joined", timeout_s=30)
        return begun[-1]

    yield start
    for process in begun:
        killed(process)


def keys(root: Path) -> set[Path]:
    return {path.parent for path in root.glob("dlq-pilot-*/identity.key")}


def killed(process: subprocess.Popen[bytes]) -> None:
    """With all that it started, as Slurm kills a job."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_killed_pilot_leaves_its_key_no_longer_than_to_the_next_one(
    begin: Begin, tmp_path: Path
) -> None:
    killed(begin())
    (left,) = keys(tmp_path)
    begin()
    wait_until(lambda: left not in keys(tmp_path), what="it is removed", timeout_s=30)
    wait_until(lambda: len(keys(tmp_path)) == 1, what="the next one has joined", timeout_s=30)


def test_the_directory_of_a_pilot_that_lives_stays(begin: Begin, tmp_path: Path) -> None:
    begin()
    begin()
    wait_until(lambda: len(keys(tmp_path)) == 2, what="both have joined", timeout_s=30)


def test_the_token_is_a_file_that_is_used_up_and_not_in_the_script(
    begin: Begin, tmp_path: Path
) -> None:
    begin()
    assert "secret" not in (tmp_path / "pilot.sh").read_text()
    assert (tmp_path / "agent.token").read_text() == "secret\n"
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700
    wait_until(lambda: not any((tmp_path / "tokens").iterdir()), what="it is removed")


def test_links_and_other_directories_stay(begin: Begin, tmp_path: Path) -> None:
    other = tmp_path / "dlq-pilot-abcdef"
    other.mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "pilot").touch()
    (tmp_path / "dlq-pilot-linked").symlink_to(tmp_path / "precious")
    begin()
    assert other.exists()
    assert (tmp_path / "precious" / "pilot").exists()
