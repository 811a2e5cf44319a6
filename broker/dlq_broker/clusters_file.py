"""The list of clusters of one user: `clusters.toml` in the identity directory.

    [clusters.lab]
    home = "/home/ada/.config/dlq"        # the identity directory for this cluster
    price_per_gpu_hour = 0.40             # what its owner charges; optional
    storage = ["/shared"]                 # directories that other clusters reach too; optional

The order of the file is the order of the list. The file is read when a command needs it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from dlq_broker.data_file import TABLES
from dlq_common.errors import ConfigError, InvalidRequest
from dlq_common.text.suggest import did_you_mean

FILE = "clusters.toml"
ANY = "any"
# A key is the number of a hand-over and this name, and has 64 characters at most.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,23}", re.ASCII)
_KEYS = ("home", "price_per_gpu_hour", "storage")


class ListedCluster(NamedTuple):
    """A cluster by its short name, and the directory with the identity for it."""

    name: str
    home: Path
    price: float | None = None  # of a GPU-hour
    storage: tuple[str, ...] = ()  # directories that all clusters that name them have in common

    def shares(self, directory: str, other: ListedCluster) -> bool:
        """Whether both clusters reach this directory under the same path."""
        path = PurePosixPath(directory)
        common = set(self.storage) & set(other.storage)
        return ".." not in path.parts and any(path.is_relative_to(one) for one in common)


ClusterList = Mapping[str, ListedCluster]


def read_clusters(path: Path) -> ClusterList:
    """The list; empty without a file. ConfigError names the wrong place."""
    import tomllib

    try:
        tree = tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", source=path) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}", source=path) from None
    for word in TABLES:
        tree.pop(word, None)
    tables = tree.pop("clusters", {})
    if tree or not isinstance(tables, dict):
        word = next(iter(tree), "clusters")
        raise _wrong(
            path, word, "want tables named [clusters.NAME], [data.NAME] and [transfer.NAME] alone"
        )
    return {name: _cluster(path, name, table) for name, table in tables.items()}


def chosen(listed: ClusterList, words: str, path: Path) -> tuple[ListedCluster, ...]:
    """The clusters of `any`, or of `a,b`, in the order of the list. InvalidRequest names a wrong
    one.
    """
    if not listed:
        what = f"there is no list of clusters: {path}"
        raise InvalidRequest(what, hint="docs/using/many-clusters.md says what stands in it")
    names = [word.strip() for word in words.split(",")]
    if names == [ANY]:
        return tuple(listed.values())
    for name in names:
        if name not in listed:
            near = did_you_mean(name, listed)
            raise InvalidRequest(f"no cluster is called {name[:64]!r}{near}", hint=f"see {path}")
    return tuple(one for one in listed.values() if one.name in names)


def _cluster(path: Path, name: str, table: Any) -> ListedCluster:
    if not _NAME.fullmatch(name) or name == ANY:
        what = f"is no name: want at most 24 of a-z, 0-9 and -, a letter first, and not {ANY!r}"
        raise _wrong(path, name, what)
    if not isinstance(table, dict):
        raise _wrong(path, name, "is no table")
    for key in table:
        if key not in _KEYS:
            raise _wrong(path, f"{name}.{key}", f"is not known{did_you_mean(key, _KEYS)}")
    home, price = table.get("home"), table.get("price_per_gpu_hour")
    if not isinstance(home, str) or not home or "\0" in home:
        raise _wrong(path, f"{name}.home", "must name an identity directory")
    if price is not None and not _is_price(price):
        raise _wrong(path, f"{name}.price_per_gpu_hour", "must be a number from 0 up")
    storage = table.get("storage", [])
    if not isinstance(storage, list) or not all(_is_directory(one) for one in storage):
        raise _wrong(path, f"{name}.storage", 'must be absolute directories, as ["/shared"]')
    place = path.parent / Path(home).expanduser()
    price = None if price is None else float(price)
    return ListedCluster(name, place, price, tuple(one.rstrip("/") or "/" for one in storage))


def _is_directory(value: object) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    path = PurePosixPath(value)
    return path.is_absolute() and ".." not in path.parts


def _is_price(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value <= 1e9  # type: ignore[arg-type,operator]


def _wrong(path: Path, key: str, what: str) -> ConfigError:
    return ConfigError(f"{path}: {key[:64]!r} {what}", source=path, key=key)
