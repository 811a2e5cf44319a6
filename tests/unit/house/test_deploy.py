"""The example configurations are ones the daemons accept."""

import re
from pathlib import Path

import pytest

from dlq_common.config import dump_config, load_config
from dlq_master.control.config import MasterConfig
from dlq_nodeagent.config import AgentConfig

CONFIG = Path(__file__).resolve().parents[3] / "deploy/config"


def test_the_masters_example_is_accepted_and_differs_from_the_defaults() -> None:
    config = load_config(MasterConfig, CONFIG / "master.toml", {})
    assert config.lease.terms() is not None
    assert config != MasterConfig()


def test_the_agents_example_is_accepted_and_differs_from_the_defaults() -> None:
    config = load_config(AgentConfig, CONFIG / "nodeagent.toml", {})
    assert config.rules() is not None
    assert config != AgentConfig()


def test_every_line_of_the_users_map_is_one_that_the_shim_reads() -> None:
    lines = (CONFIG / "users.map").read_text().splitlines()
    users = [line for line in lines if not line.startswith("#")]
    assert len(users) >= 2
    assert [line for line in users if not re.fullmatch(r"\d+:\d+:(\d+(,\d+)*)?", line)] == []


@pytest.mark.parametrize(
    ("kind", "name"), [(MasterConfig, "master.toml"), (AgentConfig, "nodeagent.toml")]
)
def test_what_check_config_prints_is_accepted_again(
    kind: type[MasterConfig] | type[AgentConfig], name: str, tmp_path: Path
) -> None:
    config = load_config(kind, CONFIG / name, {})
    printed = tmp_path / name
    printed.write_text(dump_config(config))
    assert load_config(kind, printed, {}) == config
