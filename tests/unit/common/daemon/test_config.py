"""Configuration: defaults, file, environment; and every mistake named by its key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

import pytest

from dlq_common.daemon.config import (
    Bytes,
    Seconds,
    SecretFile,
    dump_config,
    load_config,
    read_secret,
)
from dlq_common.errors import ConfigError

SHORT, LONG, LARGE = Seconds(20.0), Seconds(3600.0), Bytes(4 << 20)


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Lease:
    ttl: Seconds = SHORT
    hold: Seconds = LONG

    def __post_init__(self) -> None:
        if self.hold < self.ttl:
            raise ValueError("hold must be at least ttl")


@dataclass(frozen=True, slots=True)
class Api:
    listen: str = "127.0.0.1:7700"
    workers: int = 4
    ratio: float = 0.5
    open_: bool = False
    kind: Literal["tls", "unix"] = "tls"
    groups: tuple[str, ...] = ()
    largest: Bytes = LARGE
    key: SecretFile | None = None
    colour: Colour = Colour.RED
    quotas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Site:
    lease: Lease = field(default_factory=Lease)
    api: Api = field(default_factory=Api)
    queues: tuple[Queue, ...] = ()


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(text)
    return path


def refusal(tmp_path: Path, text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(Site, write(tmp_path, text), environ)
    return str(refused.value)


def test_without_a_file_the_defaults_hold() -> None:
    assert load_config(Site, None, {}) == Site()


def test_the_file_beats_the_defaults_and_the_environment_beats_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, '[lease]\nttl = "10s"\nhold = "2h"\n[api]\ngroups = ["a", "b"]\n')
    site = load_config(Site, path, {"DLQ_LEASE__TTL": "15s", "DLQ_JOB_ID": "9", "HOME": "/"})
    assert site.lease == Lease(ttl=Seconds(15.0), hold=Seconds(7200.0))
    assert site.api.groups == ("a", "b")


def test_the_environment_is_read_as_the_type_of_its_field() -> None:
    environ = {
        "DLQ_API__WORKERS": "8",
        "DLQ_API__RATIO": "1",
        "DLQ_API__OPEN_": "true",
        "DLQ_API__GROUPS": "x, y",
        "DLQ_API__LARGEST": "8MiB",
        "DLQ_API__KEY": "/etc/dlq/key",
        "DLQ_API__LISTEN": "1234",
    }
    api = load_config(Site, None, environ).api
    assert (api.workers, api.ratio, api.open_, api.groups) == (8, 1.0, True, ("x", "y"))
    assert (api.largest, api.key, api.listen) == (8 << 20, Path("/etc/dlq/key"), "1234")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[lease]\nttk = "10s"', "lease.ttk: unknown key; did you mean 'ttl'?"),
        ("[leese]\n", "leese: unknown key; did you mean 'lease'?"),
        ("[lease]\nttl = 10", 'lease.ttl: 10 is not text like "30s"'),
        ('[lease]\nttl = "10"', "lease.ttl: '10' is not a duration"),
        ('[api]\nworkers = "4"', "api.workers: '4' is not an integer"),
        ("[api]\nworkers = true", "api.workers: True is not an integer"),
        ("[api]\nworkers = 4.5", "api.workers: 4.5 is not an integer"),
        ("[api]\nopen_ = 1", "api.open_: 1 is not true or false"),
        ('[api]\ngroups = "a"', "api.groups: 'a' is not a list"),
        ("[api]\ngroups = [1]", "api.groups[0]: 1 is not text"),
        ('[api]\nkind = "udp"', "api.kind: udp not in literal"),
        ('[api]\nlargest = "4"', "api.largest: '4' is not a size"),
        ('[lease]\nhold = "1s"', "lease: hold must be at least ttl"),
        ('[api]\ncolour = "pink"', "api.colour: 'pink' is not a valid Colour"),
        ("[[queues]]\npriority = 1", "queues[0].name: missing"),
        (
            '[[queues]]\nname = "a"\nprio = 1',
            "queues[0].prio: unknown key; did you mean 'priority'",
        ),
        ('queues = "a"', "queues: 'a' is not a list"),
        ("lease = 3", "lease"),
        ("[lease", "not TOML"),
        ("[api]\nratio = nan", "api.ratio: nan is not a number"),
        ("[api]\nratio = inf", "api.ratio: inf is not a number"),
    ],
)
def test_a_mistake_in_the_file_names_the_key(tmp_path: Path, text: str, says: str) -> None:
    refused = refusal(tmp_path, text)
    assert says in refused
    assert "site.toml" in refused


def test_two_mistakes_are_both_named(tmp_path: Path) -> None:
    refused = refusal(tmp_path, '[lease]\nttl = 1\n[api]\nworkers = "x"')
    assert "lease.ttl" in refused
    assert "api.workers" in refused


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DLQ_LEASE__TTK", "1s", "DLQ_LEASE__TTK: unknown key 'ttk'; did you mean 'ttl'?"),
        ("DLQ_LEESE__TTL", "1s", "DLQ_LEESE__TTL: unknown key 'leese'; did you mean 'lease'?"),
        ("DLQ_LEASE__TTL__X", "1s", "DLQ_LEASE__TTL__X: 'ttl' is not a section"),
        ("DLQ_API__WORKERS", "many", "api.workers: 'many' is not an integer"),
        ("DLQ_API__WORKERS", "", "api.workers: '' is not an integer"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    tmp_path: Path, name: str, value: str, says: str
) -> None:
    assert says in refusal(tmp_path, "", **{name: value})


def test_a_missing_file_is_an_error_and_not_the_defaults(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(Site, tmp_path / "absent.toml", {})


def test_the_effective_configuration_reads_back(tmp_path: Path) -> None:
    site = Site(
        lease=Lease(ttl=Seconds(1.5), hold=Seconds(90.0)),
        api=Api(
            listen='"quoted" \\ ☂',
            groups=("a", "b"),
            key=SecretFile(Path("/k")),
            open_=True,
            quotas={"a b": 3},
        ),
        queues=(Queue("a"), Queue("b", 2)),
    )
    assert load_config(Site, write(tmp_path, dump_config(site)), {}) == site


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = SecretFile(tmp_path / "token")
    path.write_text("s3cret\n")
    path.chmod(0o600)
    assert read_secret(path) == "s3cret"
    path.chmod(0o604)
    with pytest.raises(ConfigError, match="other users may read") as refused:
        read_secret(path)
    assert "s3cret" not in str(refused.value)


def test_a_secret_that_is_missing_or_huge_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_secret(SecretFile(tmp_path / "absent"))
    huge = SecretFile(tmp_path / "huge")
    huge.write_bytes(b"x" * 100_000)
    huge.chmod(0o600)
    with pytest.raises(ConfigError, match="too large"):
        read_secret(huge)


def test_a_mark_that_editors_write_before_the_text_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('\ufeff[api]\nlisten = "1234"\n')
    assert load_config(Site, path, {}).api.listen == "1234"
