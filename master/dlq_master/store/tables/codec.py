"""Values to JSON bodies and back. Fields at their default are left out; `v` is the body's version,
and `c`, at the end, its checksum: SQLite has none of its own, and would serve a page that the disk
has changed.

Written for speed: a turn encodes every job it touches, a start decodes every job there is, many
bodies in one pass of the parser. The codec of a type is worked out once. A field whose JSON is its
value (number, word) costs nothing. Equal texts, and equal values of the kinds that many jobs have
alike, are one value in memory. Jobs that come together are alike too: of each body only the fields
that differ from the body before it are encoded.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from itertools import compress
from operator import attrgetter, is_not
from sys import intern
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from zlib import crc32

from dlq_common.errors import DlqError
from dlq_master.model.jobs.eligible import Array
from dlq_master.model.jobs.job import STORED_NAMES, RunRules
from dlq_master.model.resources import Request

REMEDY = "the disk has changed it: stop the master and restore a backup (dlq-master restore)"
T = TypeVar("T")
VERSION = 1
Convert = Callable[[Any], Any] | None  # None: JSON and value are the same
_MARK, _END = ',"c":"', '"}'
_NOTHING = object()  # the default of a field that has none
_PLAIN = (str, int, float, bool, NoneType)


# Values that many jobs have alike.
_ALIKE = (Request, RunRules, Array)
MOST_ALIKE = 10_000


class BodyDamaged(DlqError):
    """A stored value is not as it was written. It is not served."""

    reason = "BODY_DAMAGED"


class Coder(NamedTuple):
    """How one type becomes JSON-ready data, and how that becomes the type again."""

    write: Convert
    read: Convert


def encode(value: Any) -> str:
    """The body of a stored value: a NamedTuple or a dataclass."""
    kind = type(value)
    texts = _TEXTS.get(kind)
    if texts is None:
        texts = _TEXTS[kind] = _Texts(kind).text if issubclass(kind, tuple) else _whole_text
    return _sealed(texts(value))


def sealed(data: dict[str, Any]) -> str:
    """A body of this JSON object, with its checksum at its end."""
    return _sealed(_dumps(data))


def _sealed(text: str) -> str:
    return f"{text[:-1]}{_MARK}{_checksum(text)}{_END}"


def _whole_text(value: Any) -> str:
    body = _of(coder(type(value)).write)(value)
    body["v"] = VERSION
    return _dumps(body)


class _Texts:
    """The JSON of the values of a NamedTuple, each made of the one before it.

    Fields that are the very same value as before have the same text. Threads may share it.
    """

    def __init__(self, kind: type) -> None:
        self._plan = _plan(kind)
        nothing = [_NOTHING] * len(self._plan)
        self._last: tuple[Sequence[Any], list[str]] = nothing, [""] * len(nothing)

    def text(self, value: Sequence[Any]) -> str:
        last, parts = self._last
        parts = parts.copy()
        for place in compress(range(len(parts)), map(is_not, value, last)):
            name, default, convert = self._plan[place]
            item = value[place]
            if item is default or item == default:
                parts[place] = ""
            else:
                data = item if convert is None else convert(item)
                text = str(data) if type(data) is int else _dumps(data)
                parts[place] = f'"{name}":{text},'
        self._last = value, parts
        return f'{{{"".join(parts)}"v":{VERSION}}}'


_TEXTS: dict[type, Callable[[Any], str]] = {}


def decode(body: str, kind: type[T]) -> T:
    """The value of a stored body. Raises BodyDamaged for one that is not as it was written,
    ValueError for one that this master does not understand."""
    return decode_all([body], kind)[0]


def decode_all(bodies: Sequence[str], kind: type[T]) -> list[T]:
    """The values of stored bodies, as `decode`: some hundreds at a time cost least."""
    read = _of(coder(kind).read)
    objects = []
    for body in bodies:
        if not is_intact(body):
            raise BodyDamaged(f"a stored {kind.__name__} does not match its checksum", hint=REMEDY)
        objects.append(_unsealed(body))
    data = _loads(f"[{','.join(objects)}]")
    for one in data:
        version = one.pop("v", None)
        if version != VERSION:
            raise ValueError(f"a stored {kind.__name__} has version {version}, known is {VERSION}")
    try:
        return [read(one) for one in data]
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"a stored {kind.__name__} does not fit: {error}") from error


def opened(body: str, what: str) -> dict[str, Any]:
    """The JSON object of a body, without its checksum. Raises BodyDamaged, which names `what`."""
    if not is_intact(body):
        raise BodyDamaged(f"a stored {what} does not match its checksum", hint=REMEDY)
    data: dict[str, Any] = _loads(_unsealed(body))
    return data


def is_intact(body: str) -> bool:
    """Whether a body is as it was written. Bodies of older masters have no checksum.

    Without the mark of a checksum, a body passes if nothing says that the mark itself was changed.
    """
    is_sum = f"{_checksum(f'{body[:-16]}}}')}{_END}" == body[-10:]
    return is_sum if body[-16:-10] == _MARK else not is_sum and _is_object(body)


# A field that no message has, and the CRC-32 of all before it. Older masters pass over it.
_SPEC_SUM = b"\xc5\xa9\x07"
_SUMMED = len(_SPEC_SUM) + 4


def with_sum(row: tuple[int, bytes]) -> tuple[int, bytes]:
    """The row of a spec as it is stored: with a checksum behind the message."""
    key, spec = row
    return key, spec + _SPEC_SUM + crc32(spec).to_bytes(4, "little")


def is_spec_intact(stored: bytes) -> bool:
    """Whether a spec is as it was written. Specs of older masters have no checksum.

    Without the mark of a checksum, a spec passes if nothing says that the mark itself was changed.
    """
    is_sum = crc32(stored[:-_SUMMED]) == int.from_bytes(stored[-4:], "little")
    if stored[-_SUMMED:-4] == _SPEC_SUM:
        return is_sum
    return len(stored) < _SUMMED or not (is_sum or _ends_in_zeros(stored))


def _ends_in_zeros(stored: bytes) -> bool:
    """Whether zeros took the place of the mark: a lost sector, or the end of a cut page.

    No message ends like that. At most 7 bytes of a number are zeros, and its last one is not.
    """
    mark = stored[-_SUMMED:-4]
    is_half = any(mark) and all(
        found in (0, right) for found, right in zip(mark, _SPEC_SUM, strict=True)
    )
    return is_half or not any(stored[-4:]) or not any(stored[-_SUMMED - 8 : -4])


def spec_of(stored: bytes) -> bytes:
    """The spec as it was handed in. Raises BodyDamaged."""
    if not is_spec_intact(stored):
        raise BodyDamaged(f"a stored spec does not match its checksum; {REMEDY}")
    return stored[:-_SUMMED] if stored[-_SUMMED:-4] == _SPEC_SUM else stored


def coder(kind: Any) -> Coder:
    """The coder of a type. Raises TypeError for a type that no stored value may have."""
    known = _CODERS.get(kind)
    if known is None:
        known = _CODERS[kind] = _derived(getattr(kind, "__supertype__", kind))
    return known


def _is_object(body: str) -> bool:
    try:
        return isinstance(_loads(body), dict)
    except ValueError:
        return False


def _unsealed(body: str) -> str:
    return f"{body[:-16]}}}" if body[-16:-10] == _MARK else body


def _checksum(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


_CODERS: dict[Any, Coder] = {}


def _derived(kind: Any) -> Coder:
    origin = get_origin(kind)
    if kind is str:
        return Coder(None, intern)
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
            return Coder(None, _members(kind))
        if hasattr(kind, "_fields") or is_dataclass(kind):
            return _record(kind)
    raise TypeError(f"{kind} cannot be stored")


def _members(kind: type[Enum]) -> Callable[[Any], Any]:
    """Reads a member: a look into a table is a third of a call of the class."""
    known = {member.value: member for member in kind}

    def read(word: Any) -> Any:
        found = known.get(word)
        return kind(word) if found is None else found

    return read


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
    take = _same if issubclass(kind, tuple) else _values([field.name for field in described])
    plan = _plan(kind)

    def write(value: Any) -> dict[str, Any]:
        body = {}
        for (name, default, convert), item in zip(plan, take(value), strict=True):
            if item is not default and item != default:
                body[name] = item if convert is None else convert(item)
        return body

    reader = _positional if issubclass(kind, tuple) else _named
    read = reader(kind, {name: field for (name, _, _), field in zip(plan, described, strict=True)})
    return Coder(write, _shared(read) if kind in _ALIKE else read)


def _plan(kind: type) -> list[tuple[str, Any, Convert]]:
    """How each field is written: its stored name, its default, and its converter."""
    return [(STORED_NAMES.get(field.name, field.name), *field[1:3]) for field in _fields(kind)]


def _positional(kind: type, fields: Mapping[str, _Field]) -> Callable[[dict[str, Any]], Any]:
    """Reads a NamedTuple by the places of its fields: most of a job's are at their default."""
    places = {name: (at, field.read) for at, (name, field) in enumerate(fields.items())}
    defaults = [field.default for field in fields.values()]
    required = {name for name, field in fields.items() if field.default is _NOTHING}
    make = tuple.__new__

    def read(body: dict[str, Any]) -> Any:
        values = defaults.copy()
        for name, item in body.items():
            at, convert = places[name]
            values[at] = item if convert is None else convert(item)
        if not required <= body.keys():
            raise TypeError(f"no {', '.join(sorted(required - body.keys()))}")
        return make(kind, values)

    return read


def _named(kind: type, fields: Mapping[str, _Field]) -> Callable[[dict[str, Any]], Any]:
    """Reads a dataclass, which may check itself."""
    places = {name: (field.name, field.read) for name, field in fields.items()}

    def read(body: dict[str, Any]) -> Any:
        values = {}
        for name, item in body.items():
            field, convert = places[name]
            values[field] = item if convert is None else convert(item)
        return kind(**values)

    return read


def _shared(read: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Equal bodies are one value."""
    known: dict[str, Any] = {}

    def find(body: dict[str, Any]) -> Any:
        key = repr(body)
        value = known.get(key)
        if value is None:
            if len(known) >= MOST_ALIKE:
                known.clear()
            value = known[key] = read(body)
        return value

    return find


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
