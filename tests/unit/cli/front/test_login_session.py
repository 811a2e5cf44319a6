"""A server of commands knows when the user of its login session has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_cli.front.login import LoginSession

SCOPE = "/user.slice/user-1001.slice/session-17.scope"


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    made = tmp_path / "sessions"
    made.mkdir()
    (made / "17").write_text("UID=1001\nUSER=ada\nACTIVE=1\nSTATE=active\n")
    return made


def session(tmp_path: Path, sessions: Path, group: str) -> LoginSession:
    own = tmp_path / "cgroup"
    own.write_text(group)
    return LoginSession(own, sessions)


@pytest.mark.parametrize("group", [f"0::{SCOPE}\n", f"9:name=systemd:{SCOPE}\n1:cpu:/\n"])
def test_it_is_over_when_it_waits_for_its_last_processes(
    tmp_path: Path, sessions: Path, group: str
) -> None:
    login = session(tmp_path, sessions, group)
    assert not login.is_over()
    (sessions / "17").write_text("UID=1001\nUSER=ada\nACTIVE=0\nSTATE=closing\n")
    assert login.is_over()
    (sessions / "17").unlink()
    assert login.is_over()


@pytest.mark.parametrize(
    "group", ["0::/user.slice/user-1001.slice/user@1001.service/app.slice/a.service\n", "0::/\n"]
)
def test_outside_of_sessions_nothing_is_waited_for(
    tmp_path: Path, sessions: Path, group: str
) -> None:
    assert not session(tmp_path, sessions, group).is_over()


def test_a_group_of_the_hosts_sessions_means_nothing_in_a_container(tmp_path: Path) -> None:
    assert not session(tmp_path, tmp_path / "sessions", f"0::{SCOPE}\n").is_over()
