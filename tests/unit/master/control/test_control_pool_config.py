"""What is wrong with a catalogue is named by its key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dlq_common.daemon.config import load_config
from dlq_common.errors import ConfigError
from dlq_master.app import _checked
from dlq_master.control.config import MasterConfig
from dlq_master.control.pool_config import speed_of
from dlq_master.model.nodes.type_speeds import TypeSpeeds

GOOD = {
    "name": '"spot"', "provider": '"exec"', "program": '"/etc/dlq/spot"', "gpu_type": '"h100-80gb"',
    "gpus": "8", "price_per_hour": "24.0",
}  # fmt: skip


def checked(
    tmp_path: Path, changes: Mapping[str, str | None] | None = None, more: str = ""
) -> MasterConfig:
    all_rows = {**GOOD, **(changes or {})}
    rows = {key: value for key, value in all_rows.items() if value is not None}
    text = "[[pools]]\n" + "\n".join(f"{key} = {value}" for key, value in rows.items())
    path = tmp_path / "master.toml"
    path.write_text(f"{text}\n{more}")
    config = load_config(MasterConfig, path, {})
    _checked(config)
    return config


def test_a_catalogue_is_read(tmp_path: Path) -> None:
    (pool,) = checked(tmp_path, {"available_until": '"2030-01-01T00:00:00Z"'}).pools
    assert (pool.patience_s, pool.until_s) == (360.0, 1_893_456_000.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"price_per_hour": None}, "pools[0].price_per_hour: missing"),
        ({"price_per_hour": "-1.0"}, "pools[0].price_per_hour: -1 is less than 0"),
        ({"provider": '"exce"'}, "pools[0].provider: there is no provider 'exce'"),
        ({"provider": '"static"', "program": None}, "pools[0].hosts: missing"),
        ({"program": None}, "pools[0].program: missing"),
        ({"program": '"bin/spot"'}, "pools[0].program: 'bin/spot' is not absolute"),
        ({"hosts": '["gpu07"]'}, "pools[0].hosts: means something with provider = 'static' only"),
        ({"gpus": "0"}, "pools[0].gpus: must be between 1 and 64"),
        ({"name": '"training"'}, "pools[0].name: 'training' is the name of another kind"),
        ({"name": '"Spot Market"'}, "pools[0].name"),
        ({"speed": "0.0"}, "pools[0].speed: must be above 0"),
        ({"boot": '"-5s"'}, "pools[0].boot"),
        ({"available_until": '"soon"'}, "pools[0].available_until"),
        ({"prize": "1"}, "pools[0].prize: unknown key"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(
    tmp_path: Path, changes: dict[str, str | None], words: str
) -> None:
    with pytest.raises(ConfigError) as error:
        checked(tmp_path, changes)
    assert words in error.value.what


def test_a_pool_and_its_type_have_one_speed(tmp_path: Path) -> None:
    declared = "[gpu_types.h100]\nspeed = 2.0"
    (pool,) = checked(tmp_path, more=declared).pools
    assert speed_of(pool, TypeSpeeds({"h100": 2.0})) == 2.0
    assert speed_of(pool, TypeSpeeds({})) == 1.0
    with pytest.raises(ConfigError) as error:
        checked(tmp_path, {"speed": "1.5"}, more=declared)
    assert "pools[0].speed: [gpu_types] says 2 for h100-80gb" in error.value.what
    assert checked(tmp_path, {"speed": "1.5"}).pools[0].speed == 1.5


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[renting]\nmost_per_hour = -1.0", "renting.most_per_hour: -1.0 is negative"),
        ('[renting]\npolicy = "gpuaas-gredy"', "renting.policy: there is no priced policy"),
        ('[renting]\nlook_every = "0s"', "renting.look_every: must be at least 1s"),
        ('[[pools]]\nname = "spot"\nprovider = "exec"\nprogram = "/x"\ngpu_type = "a"\ngpus = '
         '1\nprice_per_hour = 1.0', "pools[1].name: there are two pools 'spot'"),
    ],
)  # fmt: skip
def test_so_is_what_is_wrong_with_renting(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        checked(tmp_path, more=more)
    assert words in error.value.what
