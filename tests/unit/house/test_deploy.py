"""The example configurations are ones the daemons accept."""

from pathlib import Path

from dlq_common.config import dump_config, load_config
from dlq_master.control.config import MasterConfig

CONFIG = Path(__file__).resolve().parents[3] / "deploy/config"


def test_the_masters_example_is_accepted_and_differs_from_the_defaults() -> None:
    config = load_config(MasterConfig, CONFIG / "master.toml", {})
    assert config.lease.terms() is not None
    assert config != MasterConfig()


def test_what_check_config_prints_is_accepted_again(tmp_path: Path) -> None:
    config = load_config(MasterConfig, CONFIG / "master.toml", {})
    printed = tmp_path / "printed.toml"
    printed.write_text(dump_config(config))
    assert load_config(MasterConfig, printed, {}) == config
