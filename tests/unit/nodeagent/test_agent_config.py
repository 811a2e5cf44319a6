"""The agent's configuration and command line."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlq_common.daemon.config import load_config
from dlq_common.errors import ConfigError
from dlq_common.text.addresses import is_loopback, split_address
from dlq_nodeagent.command import main
from dlq_nodeagent.config import (
    AgentConfig,
    MasterAddressConfig,
    NodeConfig,
    check_config,
    check_master_address,
    node_address,
)
from dlq_nodeagent.launch.rules import AgentJobsConfig


def a_config(monkeypatch: pytest.MonkeyPatch, *, uid: int, **jobs: object) -> AgentConfig:
    """A configuration of an agent that runs as that user."""
    monkeypatch.setattr(os, "getuid", lambda: uid)
    return AgentConfig(
        node=NodeConfig(devices="fake:8xH100-80GB"),
        jobs=AgentJobsConfig(**jobs),  # type: ignore[arg-type]
    )


def test_an_agent_of_root_runs_jobs_as_their_submitters(monkeypatch: pytest.MonkeyPatch) -> None:
    config = a_config(monkeypatch, uid=0)
    check_config(config)
    assert (config.run_as, config.root_jobs) == ("submitter", False)


def test_an_agent_of_a_user_runs_jobs_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    config = a_config(monkeypatch, uid=1000)
    check_config(config)
    assert (config.run_as, config.root_jobs) == ("self", False)


def test_jobs_as_root_need_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="jobs would too"):
        check_config(a_config(monkeypatch, uid=0, run_as="self"))
    config = a_config(monkeypatch, uid=0, allow_root=True)
    check_config(config)
    assert config.root_jobs


def test_jobs_as_root_take_orders_from_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    config = a_config(monkeypatch, uid=0, allow_root=True)
    check_master_address(config, "127.0.0.1:7320")
    for address in ("10.0.0.1:7320", "head:7320", "0.0.0.0:7320", "[::]:7320"):
        with pytest.raises(ConfigError, match="loopback"):
            check_master_address(config, address)
    check_master_address(replace(config, jobs=AgentJobsConfig()), "head:7320")


def test_an_agent_of_a_user_cannot_start_the_jobs_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="runs as root"):
        check_config(a_config(monkeypatch, uid=1000, run_as="submitter"))


@pytest.mark.parametrize(
    "config",
    [
        AgentConfig(node=NodeConfig(devices="fake:8")),
        AgentConfig(master=MasterAddressConfig(address="head")),
        AgentConfig(master=MasterAddressConfig(join="head:99999")),
        AgentConfig(jobs=AgentJobsConfig(roots=("data",))),
    ],
)
def test_what_can_be_seen_to_be_wrong_is_refused(config: AgentConfig) -> None:
    with pytest.raises(ConfigError):
        check_config(config)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (AgentConfig(master=MasterAddressConfig(address="head")), "master.address"),
        (AgentConfig(master=MasterAddressConfig(join="head:99999")), "master.join"),
        (AgentConfig(node=NodeConfig(devices="fake:8")), "node.devices"),
        (AgentConfig(node=NodeConfig(cgroup="dlq.slice")), "node.cgroup"),
    ],
)
def test_a_wrong_value_is_named_by_its_key(config: AgentConfig, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: "):
        check_config(config)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("localhost.evil.example:1", False),
        ("10.1.1.1:1", False),
        ("head:1", False),
    ],
)
def test_loopback_is_an_address_and_not_a_name(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


@pytest.mark.parametrize("address", ["", "head", ":1", "head:", "head:x", "head:-1", "head:٣"])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        split_address(address)


def test_a_node_beside_its_master_is_reached_on_loopback() -> None:
    assert node_address(AgentConfig(), "127.0.0.1:7320") == "127.0.0.1"
    assert node_address(AgentConfig(), "head:7320") not in ("127.0.0.1", "")
    named = AgentConfig(node=NodeConfig(address="10.0.0.7"))
    assert node_address(named, "127.0.0.1:7320") == "10.0.0.7"


def test_check_config_prints_what_would_hold_and_starts_nothing(tmp_path: Path) -> None:
    state_dir = tmp_path / "never-made"
    ran = CliRunner().invoke(
        main,
        ["run", "--check-config", "--devices", "none", "--state-dir", str(state_dir)],
        env={"DLQ_JOBS__TERM": "3s", "DLQ_JOBS__RUNTIME": "fake"},
    )
    assert ran.exit_code == 0, ran.output
    assert 'term = "3s"' in ran.output
    assert not state_dir.exists()
    path = tmp_path / "again.toml"
    path.write_text(ran.output)
    assert load_config(AgentConfig, path, {}).jobs.term == 3.0


def test_a_state_directory_is_the_same_wherever_a_job_begins() -> None:
    ran = CliRunner().invoke(
        main, ["run", "--check-config", "--devices", "none", "--state-dir", "state"]
    )
    assert f'state_dir = "{Path.cwd() / "state"}"' in ran.output


def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    path = tmp_path / "nodeagent.toml"
    path.write_text('[node]\nstate_dri = "/x"\n')
    ran = CliRunner().invoke(main, ["run", "--config", str(path), "--check-config"])
    assert ran.exit_code == 1
    assert "state_dir" in ran.stderr


def test_a_join_without_a_token_or_a_master_says_what_it_needs() -> None:
    ran = CliRunner().invoke(main, ["join", "--master", "127.0.0.1:1"])
    assert ran.exit_code == 1
    assert "token" in ran.stderr


def test_a_join_does_not_repeat_what_is_no_token() -> None:
    ran = CliRunner().invoke(main, ["join", "secret-stuff", "--master", "127.0.0.1:1"])
    assert ran.exit_code == 1
    assert "secret-stuff" not in ran.output


@pytest.mark.parametrize(
    "words", [[], ["--for", "0"], ["--for", "-5m"], ["--for", "soon"], ["--for", "2h", "--end"]]
)
def test_a_maintenance_that_names_no_absence_is_a_usage_error(words: list[str]) -> None:
    ran = CliRunner().invoke(main, ["maintenance", *words])
    assert ran.exit_code == 2, ran.output
    assert ran.stderr.startswith("dlq-nodeagent: ")


def test_the_version_is_that_of_the_distribution() -> None:
    ran = CliRunner().invoke(main, ["version"])
    assert ran.output.strip().count(".") == 2
