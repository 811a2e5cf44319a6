"""Declared data and the ways to it: two more kinds of tables in `clusters.toml`.

    [data.imagenet]
    digest = "sha256:9f…"                        # of its content: dlq data describe
    bytes = 12_000_000_000
    source = "data.example.org:/export/imagenet" # as rsync names it, or a directory
    [data.imagenet.at]
    lab = "/data/imagenet"                       # it lies there already

    [transfer.roof]
    cache = "/shared/ada/dlq-cache"              # a directory of yours that all nodes there see
    cache_gb = 500                               # at most; GB are 10^9 bytes
    mb_per_s = 200                               # from the sources to it
    price_per_gb = 0.02                          # optional

A job names data by its environment: DATA_IMAGENET=sha256:9f…. At a cluster the value becomes the
directory there. Everything here but the reading is pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dlq_common.errors import ConfigError, InvalidRequest
from dlq_common.text.suggest import did_you_mean

TABLES = ("data", "transfer")
PREFIX = "DATA_"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}", re.ASCII)
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
GB, MB = 1e9, 1e6
MOST = 5  # sets of data of one job


class Dataset(NamedTuple):
    """Data with one content. `at`: directories of clusters that have it already."""

    name: str
    digest: str  # hexadecimal
    bytes: int
    source: str
    at: Mapping[str, str]

    @property
    def variable(self) -> str:
        """The environment variable that names it."""
        return PREFIX + self.name.upper().replace("-", "_")


class StagingPlace(NamedTuple):
    """The cache for data at a cluster, and the cost of the transfer."""

    cache: str
    cache_bytes: float
    bytes_per_s: float
    price_per_gb: float = 0.0


class DataList(NamedTuple):
    """Data by name, and places by cluster."""

    data: Mapping[str, Dataset]
    places: Mapping[str, StagingPlace]


class DataNeed(NamedTuple):
    """A job's needs at one cluster: the directory of each variable, and missing data."""

    directories: Mapping[str, str]
    missing: tuple[Dataset, ...]
    place: StagingPlace | None

    @property
    def bytes(self) -> int:
        """The bytes to stage before the job starts. The content of the cache is not known here."""
        return sum(one.bytes for one in self.missing)

    @property
    def seconds(self) -> float:
        return 0.0 if self.place is None else self.bytes / self.place.bytes_per_s

    @property
    def cost(self) -> float:
        return 0.0 if self.place is None else self.bytes / GB * self.place.price_per_gb


def named(listed: DataList, words: str) -> tuple[Dataset, ...]:
    """The data of `a,b`. InvalidRequest names a wrong one."""
    names = [word.strip() for word in words.split(",") if word.strip()]
    if not 0 < len(names) <= MOST:
        raise InvalidRequest(f"--data names 1 to {MOST} sets of data")
    for name in names:
        if name not in listed.data:
            near = did_you_mean(name, listed.data)
            raise InvalidRequest(
                f"no data is called {name[:64]!r}{near}", hint="see [data.NAME] in clusters.toml"
            )
    return tuple(listed.data[name] for name in dict.fromkeys(names))


def need_at(listed: DataList, environment: Mapping[str, str], cluster: str) -> DataNeed | None:
    """The needs of a job with this environment at a cluster; None: it names no data.

    InvalidRequest: it names data that is not in the list.
    """
    by_digest = {one.digest: one for one in listed.data.values()}
    directories, missing = dict[str, str](), list[Dataset]()
    place = listed.places.get(cluster)
    for variable, value in sorted(environment.items()):
        match = _DIGEST.fullmatch(value) if variable.startswith(PREFIX) else None
        if match is None:
            continue
        one = by_digest.get(match[1])
        if one is None:
            raise InvalidRequest(f"{variable} names data that is not in the list of clusters")
        if (there := one.at.get(cluster)) is not None:
            directories[variable] = there
            continue
        missing.append(one)
        if place is not None:
            directories[variable] = f"{place.cache}/entries/{one.digest}/data"
    return DataNeed(directories, tuple(missing), place) if directories or missing else None


def read_data(path: Path) -> DataList:
    """The list; empty without a file. ConfigError names the wrong place."""
    import tomllib

    try:
        tree = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return DataList({}, {})  # `read_clusters` has told, or there is none
    data, places = (_table(path, word, tree.get(word, {})) for word in TABLES)
    return DataList(
        {name: _dataset(path, name, table) for name, table in data.items()},
        {name: _place(path, name, table) for name, table in places.items()},
    )


# --- helpers, in order of use ---------------------------------------------------------------------


def _table(path: Path, word: str, found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise _wrong(path, word, "holds tables alone")
    return found


def _dataset(path: Path, name: str, table: Mapping[str, Any]) -> Dataset:
    where = f"data.{name}"
    if not _NAME.fullmatch(name):
        raise _wrong(path, where, "is no name: want at most 31 of a-z, 0-9 and -, a letter first")
    _check_keys(path, where, table, ("digest", "bytes", "source", "at"))
    digest = _DIGEST.fullmatch(str(table.get("digest", "")))
    size, source, at = table.get("bytes"), table.get("source", ""), table.get("at", {})
    if digest is None:
        raise _wrong(path, f"{where}.digest", "is not sha256: and 64 hexadecimal digits")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise _wrong(path, f"{where}.bytes", "is no number of bytes")
    if not _is_source(source):
        raise _wrong(path, f"{where}.source", "names nothing that rsync could read")
    if not isinstance(at, dict) or not all(map(_is_directory, at.values())):
        raise _wrong(path, f"{where}.at", "names a cluster and an absolute path in each line")
    return Dataset(name, digest[1], size, source, dict(at))


def _place(path: Path, name: str, table: Mapping[str, Any]) -> StagingPlace:
    where = f"transfer.{name}"
    _check_keys(path, where, table, ("cache", "cache_gb", "mb_per_s", "price_per_gb"))
    if not _is_directory(table.get("cache")):
        raise _wrong(path, f"{where}.cache", "is no absolute path")
    for key in ("cache_gb", "mb_per_s"):
        if not _is_number(table.get(key), above=0.0):
            raise _wrong(path, f"{where}.{key}", "must be a number above 0")
    price = table.get("price_per_gb", 0.0)
    if not _is_number(price, above=-1e-9):
        raise _wrong(path, f"{where}.price_per_gb", "must be a number from 0 up")
    cache = str(table["cache"]).rstrip("/")
    return StagingPlace(
        cache, float(table["cache_gb"]) * GB, float(table["mb_per_s"]) * MB, float(price)
    )


def _check_keys(path: Path, where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise _wrong(path, f"{where}.{key}", f"is not known{did_you_mean(key, known)}")


def _is_source(text: object) -> bool:
    """Whether it is one word of text, and no option of rsync."""
    return isinstance(text, str) and text.isprintable() and text[:1] not in ("", "-")


def _is_directory(text: object) -> bool:
    if not isinstance(text, str) or not text.isprintable() or ".." in text.split("/"):
        return False
    return text.startswith("/") and len(text) > 1


def _is_number(value: object, above: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and above < value <= 1e12  # type: ignore[arg-type,operator]


def _wrong(path: Path, key: str, what: str) -> ConfigError:
    return ConfigError(f"{path}: {key[:64]!r} {what}", source=path, key=key)
