"""Values to JSON bodies and back. Fields at their default are left out; `v` is the body's version,
and `c`, at the end, its checksum: SQLite has none of its own, and would serve a page that the disk
has changed.

Written for speed: a turn encodes every job it touches, a start decodes every job there is. The
codec of a type is worked out once. A field whose JSON is its value (text, number, word) costs
nothing.
"""

import json
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from zlib import crc32

from dlq_common.errors import DlqError
from dlq_master.model.jobs.job import STORED_NAMES

REMEDY = "the disk has changed it: stop the master and restore a backup (dlq-master restore)"
T = TypeVar("T")
VERSION = 1
Convert = Callable[[Any], Any] | None  # None: JSON and value are the same
_MARK, _END = ',"c":"', '"}'
_NOTHING = object()  # the default of a field that has none
_PLAIN = (str, int, float, bool, NoneType)


class BodyDamaged(DlqError):
    """A stored value is not as it was written. It is not served."""

    reason = "BODY_DAMAGED"


class Coder(NamedTuple):
    """How one type becomes JSON-ready data, and how that becomes the type again."""

    write: Convert
    read: Convert


def encode(value: Any) -> str:
    """The body of a stored value: a NamedTuple or a dataclass."""
    body = _of(coder(type(value)).write)(value)
    body["v"] = VERSION
    return sealed(body)


def sealed(data: dict[str, Any]) -> str:
    """A body of this JSON object, with its checksum at its end."""
    text = _dumps(data)
    return f"{text[:-1]}{_MARK}{_checksum(text)}{_END}"


def decode(body: str, kind: type[T]) -> T:
    """The value of a stored body. Raises BodyDamaged for one that is not as it was written,
    ValueError for one that this master does not understand."""
    data = opened(body, kind.__name__)
    version = data.pop("v", None)
    if version != VERSION:
        raise ValueError(f"a stored {kind.__name__} has version {version}, known is {VERSION}")
    try:
        value: T = _of(coder(kind).read)(data)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"a stored {kind.__name__} does not fit: {error}") from error
    return value


def opened(body: str, what: str) -> dict[str, Any]:
    """The JSON object of a body, without its checksum. Raises BodyDamaged, which names `what`."""
    if not is_intact(body):
        raise BodyDamaged(f"a stored {what} does not match its checksum", hint=REMEDY)
    data: dict[str, Any] = _loads(_unsealed(body))
    return data


def is_intact(body: str) -> bool:
    """Whether a body is as it was written. Bodies of older masters have no checksum, and pass."""
    return not _is_sealed(body) or _checksum(_unsealed(body)) == body[-10:-2]


def coder(kind: Any) -> Coder:
    """The coder of a type. Raises TypeError for a type that no stored value may have."""
    known = _CODERS.get(kind)
    if known is None:
        known = _CODERS[kind] = _derived(getattr(kind, "__supertype__", kind))
    return known


def _is_sealed(body: str) -> bool:
    return body[-16:-10] == _MARK and body[-2:] == _END


def _unsealed(body: str) -> str:
    return f"{body[:-16]}}}" if _is_sealed(body) else body


def _checksum(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


_CODERS: dict[Any, Coder] = {}


def _derived(kind: Any) -> Coder:
    origin = get_origin(kind)
    if kind in _PLAIN:
        return Coder(None, None)
    if origin in (Union, UnionType):
        return _optional(get_args(kind))
    if origin is tuple and get_args(kind)[1:] == (...,):
        return _many(coder(get_args(kind)[0]), tuple)
    if origin is frozenset:
        return _many(coder(get_args(kind)[0]), frozenset)
    if isinstance(kind, type):
        if issubclass(kind, str | int) and issubclass(kind, Enum):
            return Coder(None, kind)
        if hasattr(kind, "_fields") or is_dataclass(kind):
            return _record(kind)
    raise TypeError(f"{kind} cannot be stored")


_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_loads = json.JSONDecoder().decode


def _of(convert: Convert) -> Callable[[Any], Any]:
    return _same if convert is None else convert


def _same(item: Any) -> Any:
    return item


def _optional(kinds: tuple[Any, ...]) -> Coder:
    inner = [coder(kind) for kind in kinds if kind is not NoneType]
    if len(inner) != 1:
        raise TypeError(f"{kinds}: only one type and None can be stored")
    return Coder(*(None if c is None else _unless_none(c) for c in inner[0]))


def _unless_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda item: None if item is None else convert(item)


def _many(item: Coder, kind: type) -> Coder:
    """Lists in JSON; the members of a set are sorted, so that equal values have equal bodies."""
    write, read = item
    ordered = sorted if kind is frozenset else list
    if write is None:
        # JSON writes a tuple of plain items as it is.
        return Coder(ordered if kind is frozenset else None, _reader(kind, read))
    return Coder(lambda items: ordered(map(write, items)), _reader(kind, read))


def _reader(kind: type, read: Convert) -> Callable[[Any], Any]:
    return kind if read is None else lambda items: kind(map(read, items))


class _Field(NamedTuple):
    name: str
    default: Any
    write: Convert
    read: Convert


def _record(kind: type) -> Coder:
    described = _fields(kind)
    names = [field.name for field in described]
    take = _same if issubclass(kind, tuple) else _values(names)
    stored = [STORED_NAMES.get(name, name) for name in names]
    plan = [(stored_as, *field[1:3]) for stored_as, field in zip(stored, described, strict=True)]
    reads = [
        (stored_as, field.read)
        for stored_as, field in zip(stored, described, strict=True)
        if field.read is not None
    ]
    renamed = [pair for pair in zip(stored, names, strict=True) if pair[0] != pair[1]]

    def write(value: Any) -> dict[str, Any]:
        body = {}
        for (name, default, convert), item in zip(plan, take(value), strict=True):
            if item is not default and item != default:
                body[name] = item if convert is None else convert(item)
        return body

    def read(body: dict[str, Any]) -> Any:
        for name, convert in reads:
            if name in body:
                body[name] = convert(body[name])
        for stored_as, name in renamed:
            if stored_as in body:
                body[name] = body.pop(stored_as)
        return kind(**body)

    return Coder(write, read)


def _values(names: list[str]) -> Callable[[Any], Any]:
    if len(names) == 1:
        name = names[0]
        return lambda value: (getattr(value, name),)
    return attrgetter(*names)


def _fields(kind: Any) -> list[_Field]:
    hints = get_type_hints(kind)
    if issubclass(kind, tuple):
        defaults = {name: kind._field_defaults.get(name, _NOTHING) for name in kind._fields}
    else:
        defaults = {
            field.name: _NOTHING if field.default is MISSING else field.default
            for field in fields(kind)
            if field.init
        }
    return [_Field(name, default, *coder(hints[name])) for name, default in defaults.items()]
