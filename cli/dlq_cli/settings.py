"""The client's settings: each from a flag, the environment, the file of this user, or a default.

The file is `config.toml` in the identity directory, flat keys in TOML. It is read when a setting is
first asked for; the master never sees it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from dlq_common.errors import ConfigError
from dlq_common.text.suggest import did_you_mean

FILE = "config.toml"
COLORS = ("auto", "always", "never")
DEFAULT = "default"


class Key(NamedTuple):
    """One setting."""

    name: str
    help: str
    flag: str  # "" none
    variable: str  # of the environment; "" none
    default: str
    read: Callable[[str], str]  # the value as it is kept; ValueError says why not


class Setting(NamedTuple):
    """A setting's value and where it came from: `--color`, `$DLQ_PATIENCE_S`, a file, `default`."""

    value: str
    origin: str


def _color(text: str) -> str:
    if text not in COLORS:
        raise ValueError(f"{text[:64]!r} is none of {', '.join(COLORS)}")
    return text


def _seconds(text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{text[:64]!r} is not a number of seconds")
    return f"{number:g}"


def _switch(text: str) -> str:
    if text not in ("0", "1"):
        raise ValueError(f"{text[:64]!r} is neither 0 nor 1")
    return text


def _path(text: str) -> str:
    if not text.startswith("/") or "\0" in text:
        raise ValueError(f"{text[:64]!r} is not an absolute path")
    return text


def _page(text: str) -> str:
    if text and not text.startswith(("https://", "http://localhost:", "http://127.0.0.1:")):
        raise ValueError(f"{text[:64]!r} does not begin with https://")
    return text


KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        Key("color", "Colour states: auto, always, never.", "--color", "", "auto", _color),
        Key(
            "patience_s",
            "Seconds to go on trying while the master does not answer.",
            "--patience", "DLQ_PATIENCE_S", "15", _seconds,
        ),
        Key(
            "login_socket",
            "The login broker on the master's host.",
            "", "DLQ_LOGIN_SOCKET", "/run/dlq/login.sock", _path,
        ),
        Key(
            "web_address",
            "The cluster's web page, for `dlq login --oidc`: https://...",
            "", "DLQ_WEB_ADDRESS", "", _page,
        ),
        Key(
            "slurm_lenient",
            "Submit Slurm scripts without the options that dlq cannot follow: 1, 0.",
            "", "DLQ_SLURM_LENIENT", "0", _switch,
        ),
    )
}  # fmt: skip


def plain(name: str, value: str | None) -> str | float | None:
    """A value as JSON has it: numbers as numbers."""
    numeric = value is not None and name in KEYS and KEYS[name].read is _seconds
    return float(value or 0) if numeric else value


class ClientSettings:
    """The settings of one run. ConfigError names the place of a value that cannot be one."""

    def __init__(self, home: Path, flags: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self.path = home / FILE
        self._flags = flags
        self._environ = environ
        self._file: Mapping[str, Setting] | None = None

    def get(self, name: str) -> Setting:
        """The value that holds: flag over environment over file over default."""
        key = KEYS[name]
        if name in self._flags:
            return self._read(key, self._flags[name], key.flag)
        if text := self._environ.get(key.variable):
            return self._read(key, text, f"${key.variable}")
        if self._file is None:
            self._file = read_file(self.path)
        return self._file.get(name) or Setting(key.default, DEFAULT)

    def number(self, name: str) -> float:
        """The value of a setting in seconds."""
        return float(self.get(name).value)

    def _read(self, key: Key, text: str, origin: str) -> Setting:
        try:
            return Setting(key.read(text), origin)
        except ValueError as error:
            raise ConfigError(f"{origin}: {error}", source=origin, key=key.name) from None


def read_file(path: Path) -> dict[str, Setting]:
    """The settings of a file, none when it does not exist; ConfigError names file and line."""
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", source=path) from None
    import tomllib

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path}: not TOML: {error}", hint="mend it, or dlq config reset", source=path
        ) from None
    return {name: _from_file(path, text, name, value) for name, value in tree.items()}


def change_file(path: Path, name: str, value: str | None) -> None:
    """Set a key in a file, or take it out with None; other lines stay as they are.

    ConfigError when the value cannot be one, or the file cannot be written.
    """
    line = None if value is None else f"{name} = {_as_toml(KEYS[name], value)}"
    _must_be_toml(path)
    try:
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        at = _line_of(lines, name)
        if at is not None:
            lines[at : at + 1] = [] if line is None else [line]
        elif line is not None:
            lines.append(line)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, "".join(f"{each}\n" for each in lines))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be changed: {error}", source=path) from None


def reset_file(path: Path) -> Path | None:
    """Put a file of settings aside, with any content; its new path, None when there was none."""
    aside = path.with_name(f"{path.name}.old")
    try:
        path.replace(aside)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be changed: {error}", source=path) from None
    return aside


def _must_be_toml(path: Path) -> None:
    """A line added to a broken file would change nothing."""
    import tomllib

    try:
        tomllib.loads(path.read_text("utf-8") if path.exists() else "")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: not TOML: {error}", hint="mend it, or dlq config reset", source=path
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}", source=path) from None


def _from_file(path: Path, text: str, name: str, value: object) -> Setting:
    at = _line_of(text.splitlines(), name)
    origin = str(path) if at is None else f"{path}:{at + 1}"
    key = KEYS.get(name)
    if key is None:
        raise ConfigError(
            f"{origin}: there is no setting {name[:64]!r}{did_you_mean(name, KEYS)}",
            hint=f"dlq config unset {name} takes it out",
            source=path,
        )
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{origin}: {name}: not a word or a number", source=path)
    try:
        return Setting(key.read(str(value)), origin)
    except ValueError as error:
        raise ConfigError(f"{origin}: {name}: {error}", source=path) from None


def _line_of(lines: list[str], name: str) -> int | None:
    pattern = re.compile(rf"\s*['\"]?{re.escape(name)}['\"]?\s*=")
    return next((number for number, line in enumerate(lines) if pattern.match(line)), None)


def _as_toml(key: Key, value: str) -> str:
    try:
        text = key.read(value)
    except ValueError as error:
        raise ConfigError(f"{key.name}: {error}") from None
    return text if key.read is _seconds else json.dumps(text, ensure_ascii=False)


def _replace(path: Path, text: str) -> None:
    """At once: a reader finds the old file or the new one."""
    temporary = path.with_name(f".{path.name}.next")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)
