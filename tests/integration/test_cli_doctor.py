"""`dlq doctor`: clear verdicts on this client and the way to the master, and an exit code."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from syrupy.assertion import SnapshotAssertion

from dlq_client.line.identity import load_identity, save_identity
from dlq_common.clock import SteadyClock
from support.cli_run import Dlq, Said
from support.fake_master import FakeMaster

pytestmark = pytest.mark.integration


@pytest.fixture
def home(master: FakeMaster, tmp_path: Path) -> Path:
    return master.home(tmp_path / "home")


@pytest.fixture
def dlq(home: Path, tmp_path: Path) -> Dlq:
    """A client whose PATH and HOME hold what a test puts there."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "user").mkdir()
    environ = {
        "PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "user"), "SHELL": "/bin/bash",
    }  # fmt: skip
    return Dlq(home, environ)


def verdicts(said: Said) -> dict[str, dict[str, str]]:
    return {each["check"]: each for each in json.loads(said.out)["verdicts"]}


def looked(dlq: Dlq) -> dict[str, dict[str, str]]:
    return verdicts(dlq("doctor", "--no-node", "--json"))


def settled(text: str, tmp_path: Path) -> str:
    """Without what differs from run to run."""
    text = text.replace(str(tmp_path), "TMP")
    text = re.sub(r"127\.0\.0\.1:\d+ in \d+ ms", "ADDRESS in N ms", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "UNTIL", text)
    text = re.sub(r"(\w+ )(ahead of|behind) the master's", "APART", text)
    return re.sub(r"dlq \d[^,]*, Python [0-9.]+", "dlq V, Python V", text)


def test_doctor_tells_every_verdict_and_what_to_do(
    dlq: Dlq, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    said = dlq("doctor", "--no-node")
    assert (said.code, said.err) == (0, ""), said.out
    assert settled(said.out, tmp_path) == snapshot
    in_json = dlq("doctor", "--no-node", "--json")
    assert json.dumps(json.loads(settled(in_json.out, tmp_path)), indent=1) == snapshot


def test_a_working_client_has_nothing_to_mend_but_what_it_lacks(dlq: Dlq, tmp_path: Path) -> None:
    (tmp_path / "bin/dlq").write_text("#!/bin/sh\n")
    (tmp_path / "bin/dlq").chmod(0o755)
    (tmp_path / "user/.bashrc").write_text('eval "$(dlq completion bash)"\n')
    found = looked(dlq)
    assert {name for name, each in found.items() if each["health"] != "ok"} <= {"clock"}
    assert found["credentials"]["found"].startswith("alice (user) of lab")


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".local/share/bash-completion/completions/dlq"),
        ("zsh", ".zfunc/_dlq"),
        ("fish", ".config/fish/completions/dlq.fish"),
    ],
)
def test_completion_is_found_where_shells_keep_it(
    shell: str, file: str, home: Path, tmp_path: Path
) -> None:
    environ = {"HOME": str(tmp_path), "SHELL": f"/usr/bin/{shell}"}
    lacking = looked(Dlq(home, environ))["completion"]
    assert (lacking["health"], f"completion {shell}" in lacking["todo"]) == ("warn", True)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    assert looked(Dlq(home, environ))["completion"]["health"] == "ok"


def test_who_is_not_logged_in_is_told_how(tmp_path: Path) -> None:
    said = Dlq(tmp_path / "nobody")("doctor", "--no-node", "--json")
    assert said.code == 1
    found = verdicts(said)
    assert found["credentials"]["health"] == "fail"
    assert "dlq login" in found["credentials"]["todo"]
    assert {found[name]["health"] for name in ("network", "master", "clock")} == {"skip"}


def test_an_expired_certificate_is_told_with_its_date(dlq: Dlq, home: Path) -> None:
    identity = load_identity(home)
    assert identity is not None
    save_identity(home, replace(identity, expires_s=SteadyClock().now_s() - 60))
    said = dlq("doctor", "--no-node", "--json")
    assert said.code == 1
    assert "the certificate ended at" in verdicts(said)["credentials"]["found"]


def test_a_key_that_others_may_read_is_told_with_the_remedy(dlq: Dlq, home: Path) -> None:
    (home / "identity.key").chmod(0o644)
    found = looked(dlq)["credentials"]
    assert found["health"] == "fail"
    assert found["todo"].startswith("chmod 600")


def test_a_master_that_is_away_is_told_apart_from_one_that_refuses(
    dlq: Dlq, home: Path, master: FakeMaster
) -> None:
    master.refuse("GetCluster", grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED", what="no")
    found = looked(dlq)
    assert (found["network"]["health"], found["master"]["health"]) == ("ok", "fail")
    assert found["clock"]["health"] == "skip"
    master.stop()
    found = looked(dlq)
    assert (found["network"]["health"], found["master"]["health"]) == ("fail", "skip")
    assert "nothing listens there" in found["network"]["found"]


@pytest.mark.parametrize("address", ["no-such-host.invalid:7320", "nonsense"])
def test_an_address_that_leads_nowhere_is_told(address: str, dlq: Dlq, home: Path) -> None:
    identity = load_identity(home)
    assert identity is not None
    save_identity(home, replace(identity, address=address))
    assert looked(dlq)["network"]["health"] == "fail"


def test_another_ca_is_the_masters_verdict(dlq: Dlq, home: Path, tmp_path: Path) -> None:
    stranger = FakeMaster()
    try:
        other = load_identity(stranger.home(tmp_path / "other"))
        mine = load_identity(home)
        assert mine is not None
        assert other is not None
        save_identity(home, replace(other, address=mine.address))
        found = looked(dlq)
        assert (found["network"]["health"], found["master"]["health"]) == ("ok", "fail")
    finally:
        stranger.stop()


def test_broken_settings_are_a_verdict_and_stop_no_other(dlq: Dlq, home: Path) -> None:
    (home / "config.toml").write_text("colour = 1\n")
    found = looked(dlq)
    assert "config.toml:1" in found["settings"]["found"]
    assert found["master"]["health"] == "ok"


def test_what_a_node_needs_is_looked_at_when_asked_for(dlq: Dlq, tmp_path: Path) -> None:
    config = tmp_path / "nodeagent.toml"
    config.write_text("[node]\ndevices = 'fake:8xH100-80GB'\n")
    found = verdicts(dlq("doctor", "--json", "--config", str(config)))
    assert {"agent", "shim", "compiler", "podman", "runtimes", "cgroups", "nvml", "disk"} <= set(
        found
    )
    assert found["nvml"]["health"] == "skip"
    assert "agent" not in looked(dlq)
