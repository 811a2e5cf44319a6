"""Values to JSON bodies and back. Fields at their default are left out; `v` is the body's version."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import cattrs
from cattrs.cols import (
    is_namedtuple,
    namedtuple_dict_structure_factory,
    namedtuple_dict_unstructure_factory,
)
from cattrs.preconf.json import make_converter

T = TypeVar("T")
VERSION = 1


def _converter() -> cattrs.Converter:
    converter = make_converter()
    converter.register_unstructure_hook_factory(is_namedtuple, _without_defaults)
    converter.register_structure_hook_factory(is_namedtuple, namedtuple_dict_structure_factory)
    return converter


def _without_defaults(
    kind: type, converter: cattrs.BaseConverter
) -> Callable[[Any], dict[str, Any]]:
    return namedtuple_dict_unstructure_factory(kind, converter, True)


_CONVERTER = _converter()


def encode(value: Any) -> str:
    """The body of a stored value."""
    body = _CONVERTER.unstructure(value)
    body["v"] = VERSION
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def decode(body: str, kind: type[T]) -> T:
    """The value of a stored body. Raises ValueError for a version this master does not know."""
    fields = json.loads(body)
    version = fields.pop("v", None)
    if version != VERSION:
        raise ValueError(f"a stored {kind.__name__} has version {version}, known is {VERSION}")
    return _CONVERTER.structure(fields, kind)
