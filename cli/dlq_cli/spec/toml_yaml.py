"""Spec files: TOML and YAML to one layer, each key with the line it stands on.

YAML values are read as the text that was written: `1:30:00` is a time and `no` is a word, against
the rules of YAML 1.1.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dlq_cli.spec.fields import SECTIONS, put
from dlq_cli.spec.values.given import Layer, are_enough, collected, wrong
from dlq_common.errors import InvalidRequest

if TYPE_CHECKING:
    from yaml.nodes import Node

LARGEST_SPEC_BYTES = 512 * 1024
MOST_WRITTEN_OUT = 4 * LARGEST_SPEC_BYTES  # characters of YAML with its aliases written out
SUFFIXES = (".toml", ".yaml", ".yml")

_TOML_SECTION = re.compile(r"\s*\[\s*([A-Za-z0-9_.\"-]+)\s*\]")
_TOML_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+?)\s*=")


# tomllib takes memory by the square of a key's parts.
_TOML_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){64}""")
_TOML_ERROR_LINE = re.compile(r"at line (\d+)")


def read_spec_file(
    content: bytes, name: str, problems: list[InvalidRequest] | None = None
) -> Layer:
    """The layer of a spec file; InvalidRequest naming file and line.

    With a list for `problems` it collects the problems of the keys; without it raises the first.
    A file that is not TOML or YAML at all is always raised.
    """
    tree, lines = read_tree(content, name)
    try:
        return layer_of(tree, lines, name, problems)
    except RecursionError:
        raise wrong(name, "it is nested too deeply") from None


def read_tree(content: bytes, name: str) -> tuple[object, Mapping[str, int]]:
    """The values of a file, and the line of each key with its tables before it."""
    if len(content) > LARGEST_SPEC_BYTES:
        raise wrong(name, f"larger than a spec may be ({LARGEST_SPEC_BYTES // 1024} KiB)")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise wrong(name, f"not text (byte {error.start} is not UTF-8)") from None
    if not text.strip():
        raise wrong(name, "it is empty")
    return _read_toml(text, name) if name.endswith(".toml") else _read_yaml(text, name)


_Flat = list[tuple[str, object]]


def _read_toml(text: str, name: str) -> tuple[object, Mapping[str, int]]:
    if deep := _TOML_DEEP_KEY.search(text):
        line = text.count("\n", 0, deep.start()) + 1
        raise wrong(f"{name}:{line}", "not TOML that is read here: a key has over 64 parts")
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _TOML_ERROR_LINE.search(str(error))
        origin = f"{name}:{found[1]}" if found else name
        raise wrong(origin, f"not TOML: {_one_line(error)}") from None
    return tree, _toml_lines(text)


def _toml_lines(text: str) -> dict[str, int]:
    """The line of each key, found in the text: the parser keeps none."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _TOML_SECTION.match(line):
            section = _unquoted(found[1])
            lines.setdefault(section, number)
        elif found := _TOML_KEY.match(line):
            lines.setdefault(f"{section}.{_unquoted(found[1])}".lstrip("."), number)
    return lines


def _read_yaml(text: str, name: str) -> tuple[object, Mapping[str, int]]:
    import yaml

    try:
        loader = yaml.BaseLoader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _refuse_nodes(node, name, set())
            lines = dict(_yaml_lines(node, name)) if node is not None else {}
            tree = loader.construct_document(node) if node is not None else {}
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise wrong(f"{name}:{line}", f"not YAML: {_one_line(error.problem)}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise wrong(name, f"not YAML: {_one_line(error)}") from None
    return tree, lines


def _refuse_nodes(node: Node, name: str, seen: set[int]) -> None:
    """Refuse YAML that reads as something else than it says: a tag, and a key without a value."""
    from yaml.nodes import MappingNode, ScalarNode, SequenceNode

    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    where = f"{name}:{node.start_mark.line + 1}"
    if node.tag not in _TAGS:
        raise wrong(where, f"tags are not read: {_one_line(node.tag)}")
    if isinstance(node, SequenceNode):
        for each in node.value:
            _refuse_nodes(each, name, seen)
    if not isinstance(node, MappingNode):
        return
    for key, value in node.value:
        _refuse_nodes(key, name, seen)
        _refuse_nodes(value, name, seen)
        nothing = isinstance(value, ScalarNode) and not value.style and value.value in _NOTHING
        if nothing and key.value not in SECTIONS:
            raise wrong(
                f"{name}:{key.start_mark.line + 1}",
                f"{_one_line(key.value)} has no value",
                hint="leave the key out; an empty text is ''",
            )


_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})


def _yaml_lines(
    node: Node, name: str, prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, int]]:
    """The line of each key of the two levels a spec has; a key that stands twice is an error."""
    from yaml.nodes import MappingNode, ScalarNode

    if not isinstance(node, MappingNode) or depth == 2:
        return
    seen: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise wrong(f"{name}:{key.start_mark.line + 1}", "a key must be a word")
        line = key.start_mark.line + 1
        if key.value in seen:
            raise wrong(f"{name}:{line}", f"{key.value!r} stands here twice")
        seen.add(key.value)
        yield prefix + key.value, line
        yield from _yaml_lines(value, name, f"{prefix}{key.value}.", depth + 1)


def _flat(tree: Mapping[str, Any]) -> _Flat:
    """Keys with their section before them; other tables (env, labels) stay whole."""
    flat: _Flat = []
    for key, value in tree.items():
        if key in SECTIONS and isinstance(value, Mapping):
            flat += [(f"{key}.{inner}", item) for inner, item in value.items()]
        else:
            flat.append((str(key), value))
    return flat


def layer_of(
    tree: object,
    lines: Mapping[str, int],
    name: str,
    problems: list[InvalidRequest] | None = None,
    above: str = "",
) -> Layer:
    """The keys of a job among the values of a file; `above`: the tables in which they stand."""
    flat = _flat(tree) if isinstance(tree, Mapping) else [("", tree)]
    layer: Layer = {}
    sizes: dict[int, int] = {}
    for key, value in flat:
        line = lines.get(f"{above}{key}")
        origin = name if line is None else f"{name}:{line}"
        if are_enough(problems):
            break
        with collected(problems):
            if not key:
                raise wrong(name, "it holds no keys: write `command: ...`")
            if key in SECTIONS:
                raise wrong(origin, f"{key} is a section: write its keys below it")
            if _written_out(value, sizes) > MOST_WRITTEN_OUT:
                raise wrong(origin, "its aliases stand for far more than the file holds")
            put(layer, key, value, origin)
    return layer


def _written_out(value: object, sizes: dict[int, int]) -> int:
    """The size of a value with its aliases written out."""
    if id(value) in sizes:
        return sizes[id(value)]
    size = 1 + (len(value) if isinstance(value, str) else 0)
    if isinstance(value, list):
        size += sum(_written_out(each, sizes) for each in value)
    if isinstance(value, Mapping):
        size += sum(_written_out(each, sizes) for pair in value.items() for each in pair)
    sizes[id(value)] = size
    return size


def _unquoted(key: str) -> str:
    return key.replace('"', "").replace("'", "")


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
