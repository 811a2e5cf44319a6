"""Directories of ranks in containers that a killed agent has left half made, or half removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from dlq_common.clock import SteadyClock
from dlq_nodeagent.cgroups.trees import NoTree
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.runtimes.podman.client import PodmanClient
from dlq_nodeagent.runtimes.podman.runtime import PodmanRuntime

KEY = RankKey("7", 1, 0)


class EmptyStore:
    """A podman that knows of no container."""

    def ask(self, *words: str, **_: Any) -> str:
        return ""


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[PodmanRuntime]:
    tmp_path.chmod(0o711)
    made = PodmanRuntime(
        state_dir=tmp_path,
        contact=tmp_path / "contact",
        cgroups=NoTree("none here"),
        container_cgroups=NoTree("none here"),
        shim=Path("/bin/true"),
        init=Path("/bin/true"),
        client=cast(PodmanClient, EmptyStore()),
        clock=SteadyClock(),
    )
    yield made
    made.close()


def a_launch_cut_short(root: Path) -> Path:
    """The agent died before the plan was there, or the disk was full."""
    at = root / "attempts" / str(KEY)
    (at / "podman" / "m0").mkdir(parents=True)
    (at / "podman" / "cid").write_text("abc")
    (at / "job").mkdir()
    return at


def test_a_launch_that_was_cut_short_does_not_stop_the_next_agent(
    runtime: PodmanRuntime, tmp_path: Path
) -> None:
    at = a_launch_cut_short(tmp_path)
    assert runtime.recover() == []
    assert not at.exists()


def test_what_cannot_be_removed_is_told_and_stops_nobody(
    runtime: PodmanRuntime, tmp_path: Path
) -> None:
    at = a_launch_cut_short(tmp_path)
    (at / "podman" / "m0" / "of-somebody").write_text("")
    with capture_logs() as told:
        assert runtime.recover() == []
    (line,) = told
    assert (line["event"], line["path"]) == ("attempt_not_removed", str(at))
    assert (at / "podman" / "m0" / "of-somebody").exists()
