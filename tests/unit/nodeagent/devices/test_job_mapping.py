"""Files that tell DCGM's exporter which job has which GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_common.errors import ConfigError
from dlq_nodeagent.config import AgentConfig, check_config
from dlq_nodeagent.devices import job_mapping
from dlq_nodeagent.devices.job_mapping import AGAIN_S, JobMapping, written
from dlq_nodeagent.devices.watch import GpusConfig
from support.agent_bench import AgentBench, a_launch, a_stop
from support.fake_clock import FakeClock


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def mapping(directory: Path, clock: FakeClock) -> Iterator[JobMapping]:
    mapping = JobMapping(directory, clock)
    yield mapping
    mapping.close()


def files(directory: Path) -> dict[str, str]:
    return {one.name: one.read_text() for one in directory.iterdir()}


def show(mapping: JobMapping, jobs: dict[int, str]) -> None:
    mapping.show(jobs)
    mapping.settle()


def test_files_come_change_and_go_with_the_ranks(mapping: JobMapping, directory: Path) -> None:
    show(mapping, {0: "17", 3: "17"})
    assert files(directory) == {"0": "17\n", "3": "17\n"}
    show(mapping, {3: "18"})
    assert files(directory) == {"3": "18\n"}
    assert (directory / "3").stat().st_mode & 0o777 == 0o644
    show(mapping, {})
    assert files(directory) == {}


def test_a_start_removes_what_an_earlier_agent_left_and_nothing_else(
    mapping: JobMapping, directory: Path
) -> None:
    directory.mkdir()
    for name in ("0", "7", ".5.new", "README", "7.old"):
        (directory / name).write_text("16\n")
    show(mapping, {0: "17"})
    assert files(directory) == {"0": "17\n", "README": "16\n", "7.old": "16\n"}


def test_nothing_is_written_where_nothing_has_changed(
    mapping: JobMapping, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(mapping, {0: "17"})
    monkeypatch.setattr(job_mapping, "written", lambda *_: pytest.fail("it writes again"))
    show(mapping, {0: "17"})
    assert files(directory) == {"0": "17\n"}


def test_a_failure_is_tried_again_after_a_while(
    mapping: JobMapping, directory: Path, clock: FakeClock
) -> None:
    directory.write_text("a file is in the way")
    show(mapping, {0: "17"})
    directory.unlink()
    show(mapping, {0: "17"})
    assert not directory.exists()
    clock.advance(AGAIN_S)
    show(mapping, {0: "17"})
    assert files(directory) == {"0": "17\n"}


def test_a_directory_in_which_others_write_is_left_alone(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    assert written(directory, {0: "17"}) == "other users may write there"
    assert files(directory) == {}


def test_a_directory_of_another_user_is_left_alone(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may put anything into it, and put a link in its place."""
    directory.mkdir()
    found = directory.stat()
    theirs = os.stat_result((*found[:4], 4711, *found[5:]))
    monkeypatch.setattr(Path, "stat", lambda *_, **__: theirs)
    assert written(directory, {0: "17"}) == "other users may write there"


def test_a_link_under_the_name_of_a_new_file_is_not_followed(
    directory: Path, tmp_path: Path
) -> None:
    directory.mkdir()
    target = tmp_path / "target"
    target.write_text("mine")
    (directory / ".0.new").symlink_to(target)
    assert written(directory, {0: "17"}) == ""
    assert target.read_text() == "mine"
    assert files(directory) == {"0": "17\n"}


def test_a_reader_never_sees_half_a_file(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(directory, {0: "17"})
    seen: list[dict[str, str]] = []
    rename = Path.rename

    def watched(self: Path, target: Path) -> Path:
        seen.append({name: text for name, text in files(directory).items() if name.isdecimal()})
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", watched)
    written(directory, {0: "18"})
    assert seen == [{"0": "17\n"}]
    assert files(directory) == {"0": "18\n"}


def test_gpus_have_their_job_from_its_start_to_its_end_and_over_a_restart() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(17, gpu_indexes=(2, 3))
    bench.order(launch)
    bench.run(1)
    assert bench.core.supervisor.jobs_of_gpus() == {2: "17", 3: "17"}
    bench.restart(down_s=5)
    bench.run(1)
    assert bench.core.supervisor.jobs_of_gpus() == {2: "17", 3: "17"}, "also on a silent line"
    bench.connect(stops=(a_stop(launch, cause="cancel", grace_s=0.0),))
    bench.run(30)
    assert bench.core.supervisor.jobs_of_gpus() == {}


def test_a_rank_that_ended_while_no_agent_was_there_has_no_gpu() -> None:
    bench = AgentBench()
    bench.connect()
    bench.order(a_launch(17, does="run_for=5"))
    bench.run(1)
    bench.restart(down_s=60)
    bench.run(1)
    assert bench.core.supervisor.jobs_of_gpus() == {}


def test_a_relative_directory_is_refused() -> None:
    config = AgentConfig(gpus=GpusConfig(job_mapping="run/jobs"))
    with pytest.raises(ConfigError, match=r"gpus\.job_mapping"):
        check_config(config)
