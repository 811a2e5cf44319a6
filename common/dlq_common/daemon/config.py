"""Configuration of a daemon: defaults, then a TOML file, then the environment, into frozen values.

A room declares one frozen dataclass whose fields are sections, again frozen dataclasses. Here, and
nowhere else in a daemon, the environment is read. The CLI does not import this module: cattrs
belongs to the daemons' extras. It is loaded with the first file, so that a process that is given
its configuration does without it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import os
import stat
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NewType, TypeVar

from dlq_common.errors import ConfigError
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import format_size, format_span, parse_size, parse_span

if TYPE_CHECKING:
    import cattrs

Seconds = NewType("Seconds", float)  # "30s", "1h30m" in a file
Bytes = NewType("Bytes", int)  # "64MiB" in a file
SecretFile = NewType("SecretFile", Path)  # a secret is named by its file, never written down

ENV_PREFIX = "DLQ_"
SEPARATOR = "__"
# A secret is one line; a larger file is the wrong file.
LARGEST_SECRET_BYTES = 64 * 1024

T = TypeVar("T")


def load_config(kind: type[T], path: Path | None, environ: Mapping[str, str] | None = None) -> T:
    """The effective configuration: defaults of `kind`, under the file, under `DLQ_SECTION__KEY`.

    `path` None means no file; a path that cannot be read is an error. Unknown keys, in the file or
    in the environment, and values of the wrong type raise ConfigError with the path of the key.
    """
    tree = _read_toml(path) if path is not None else {}
    source = str(path) if path is not None else "the environment"
    for name, value in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(ENV_PREFIX) and SEPARATOR in name:
            _override(kind, tree, name, value)
    import cattrs

    forbidden = cattrs.ForbiddenExtraKeysError
    try:
        return _converter().structure(tree, kind)
    except (cattrs.BaseValidationError, forbidden, ValueError, TypeError) as error:
        problems = list(_problems(error, ""))
        raise ConfigError(f"{source}: {'; '.join(problems)}", source=source) from None


def dump_config(config: Any) -> str:
    """The configuration as TOML that `load_config` reads back; for `--check-config`."""
    lines: list[str] = []
    _dump_section(config, "", "", lines)
    return "\n".join(lines).strip() + "\n"


def read_secret(path: SecretFile) -> str:
    """The one line a secret file holds. Refuses one that other users may read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(LARGEST_SECRET_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", source=path) from None
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigError(
            f"{path}: other users may read this secret", hint=f"chmod 600 {path}", source=path
        )
    if len(content) > LARGEST_SECRET_BYTES:
        raise ConfigError(f"{path}: too large for a secret", source=path)
    return content.decode("utf-8", "strict").strip()


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8-sig"))  # editors write a mark before the text
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", source=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}", source=path) from None


def _override(kind: type, tree: dict[str, Any], name: str, value: str) -> None:
    """Put one `DLQ_SECTION__KEY` variable into the tree, read as the type of its field."""
    *sections, key = name.removeprefix(ENV_PREFIX).lower().split(SEPARATOR)
    here: Any = kind
    for section in sections:
        here = _field_type(here, section, name)
        tree = tree.setdefault(section, {})
        if not dataclasses.is_dataclass(here) or not isinstance(tree, dict):
            raise ConfigError(f"{name}: {section!r} is not a section", source=name)
    tree[key] = _from_text(_field_type(here, key, name), value, name)


def _field_type(kind: Any, key: str, name: str) -> Any:
    types = typing.get_type_hints(kind)
    if key not in types:
        raise ConfigError(f"{name}: unknown key {key!r}{did_you_mean(key, types)}", source=name)
    return types[key]


def _from_text(wanted: Any, text: str, name: str) -> Any:
    """An environment value: text where text is wanted, otherwise a TOML value."""
    if wanted in (str, Path, Seconds, Bytes, SecretFile) or type(None) in typing.get_args(wanted):
        return text
    if _is_tuple(wanted) and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _converter() -> cattrs.Converter:
    """Strict about types: `"5"` is no integer and `5` is no duration."""
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook_factory(_is_tuple, _tuple_hook)
    hooks: dict[Any, Callable[[Any, Any], Any]] = {
        **dict.fromkeys(_IN_WORDS, _plain),
        Seconds: lambda value, _: parse_span(_text(value, '"30s"')),
        Bytes: lambda value, _: parse_size(_text(value, '"64MiB"')),
        StrEnum: lambda value, kind: kind(value),
        Path: lambda value, _: _path(value),
        SecretFile: lambda value, _: _path(value),
    }
    for kind, hook in hooks.items():
        if isinstance(kind, type):
            converter.register_structure_hook(kind, hook)
        else:
            converter.register_structure_hook_func(partial(operator.eq, kind), hook)
    return converter


def _plain(value: Any, kind: type) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{value!r} is not {_IN_WORDS[kind]}")
    return value


_IN_WORDS = {str: "text", int: "an integer", float: "a number", bool: "true or false"}


def _path(value: Any) -> Path:
    return Path(_text(value, '"/etc/dlq/..."')).expanduser()


def _text(value: Any, example: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text like {example}")
    return value


def _is_tuple(kind: Any) -> bool:
    return typing.get_origin(kind) is tuple


def _tuple_hook(kind: Any, converter: cattrs.BaseConverter) -> Callable[[Any, Any], Any]:
    """`tuple[X, ...]` from a TOML array, and from nothing else: text is not a list of letters."""
    items = GenericAlias(list, typing.get_args(kind)[:1])
    structure = converter.get_structure_hook(items)
    return lambda value, _: tuple(structure(_listed(value), items))


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return value


def _problems(error: BaseException, where: str) -> Iterator[str]:
    """Every leaf of a validation error as `section.key: the fault`."""
    import cattrs

    if isinstance(error, cattrs.ClassValidationError):
        inside, others = error.group_exceptions()
        for problem, note in inside:
            yield from _problems(problem, f"{where}.{note.name}".lstrip("."))
        for other in others:
            yield from _problems(other, where)
    elif isinstance(error, cattrs.IterableValidationError):
        items, others = error.group_exceptions()
        for problem, item in items:
            yield from _problems(problem, f"{where}[{item.index}]")
        for other in others:
            yield from _problems(other, where)
    elif isinstance(error, cattrs.ForbiddenExtraKeysError):
        known = [field.name for field in dataclasses.fields(error.cl)]
        for key in sorted(error.extra_fields):
            path = f"{where}.{key}".lstrip(".")
            yield f"{path}: unknown key{did_you_mean(key, known)}"
    elif isinstance(error, AttributeError):  # of a list or a word in the place of a table
        yield f"{where}: it is no table"
    elif isinstance(error, KeyError):
        yield f"{where}: missing" if where else f"{error.args[0]}: missing"
    else:
        yield f"{where}: {error}".removeprefix(": ")


def _dump_section(section: Any, name: str, header: str, lines: list[str]) -> None:
    types = typing.get_type_hints(type(section))
    plain: list[str] = []
    below: list[tuple[str, str, Any]] = []
    for field in dataclasses.fields(section):
        key, value = field.name, getattr(section, field.name)
        path = f"{name}.{key}".lstrip(".")
        if dataclasses.is_dataclass(value):
            below.append((path, f"[{path}]", value))
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            below += [(path, f"[[{path}]]", item) for item in value]
        elif isinstance(value, Mapping) and any(map(dataclasses.is_dataclass, value.values())):
            for word, item in value.items():
                below.append((f"{path}.{word}", f"[{path}.{json.dumps(word)}]", item))
        elif value is not None:
            plain.append(f"{key} = {_toml_value(value, types[key])}")
    lines += ["", header, *plain] if plain or header.startswith("[[") else []
    for path, line, value in below:
        _dump_section(value, path, line, lines)


def _toml_value(value: Any, kind: Any) -> str:
    if kind is Seconds:
        return f'"{format_span(value)}"'
    if kind is Bytes:
        return f'"{format_size(value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item, None) for item in value) + "]"
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {_toml_value(v, None)}" for key, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    return json.dumps(str(value), ensure_ascii=False)
