"""The key of sessions in jobs: made once, also by two first calls at once."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlq_cli.interactive.sshd import key_of

# Each call makes a key of its own, and takes long enough for others to begin.
KEYGEN = """#!/bin/sh
for word; do last=$word; done
[ -e "$last" ] && exit 1
echo "$$" > "$last"
sleep 0.2
echo "$$" > "$last.pub"
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "ssh-keygen").write_text(KEYGEN)
    (tmp_path / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return SimpleNamespace(home=tmp_path / "home")


def test_first_calls_at_once_leave_one_pair_that_belongs_together(app: Any) -> None:
    with ThreadPoolExecutor(4) as pool:
        keys = set(pool.map(key_of, [app] * 4))
    (key,) = keys
    assert key.read_text() == key.with_suffix(".pub").read_text()


def test_what_a_call_left_that_was_killed_does_not_stand_in_the_way(app: Any) -> None:
    left = app.home / "ssh" / ".id_ed25519.fresh"
    left.parent.mkdir(parents=True)
    left.write_text("half a key")
    assert key_of(app).read_text() != "half a key"


def test_a_key_that_cannot_be_made_leaves_none(app: Any, tmp_path: Path) -> None:
    (tmp_path / "ssh-keygen").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(subprocess.CalledProcessError):
        key_of(app)
    assert not (app.home / "ssh" / "id_ed25519").exists()
