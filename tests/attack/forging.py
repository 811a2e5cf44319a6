"""Requests for every method, made from the descriptors: sound ones, bent ones, and bytes that are
no message.

All of it follows from a seed. Names in requests are mostly those of things that are there, so that
what is asked gets past the first look.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from support.wire_methods import Method

DEEPEST = 5
TEXTS = (
    "", " ", ".", "..", "/", "../../../../etc/shadow", "/proc/self/environ", "/dev/stdin", "%s%n{0}", "\x00",  # noqa: E501
    "a\nb", "\x1b]0;gone\x07\x1b[2J", "\u202etxt", "\ufeff", "\U0010ffff", "é", "'; DROP TABLE jobs; --", "-1",  # noqa: E501
    "*", "0", "9223372036854775808", "1e400", "nan", "None", "true", "[[]]", "{}", "x" * 300, "y" * 70_000,  # noqa: E501
    "1[0-99999]", "1-2,4", "afterok:1", "gpu[01-99999999]", "~root", "$(reboot)", "alice ", "ALICE", "root",  # noqa: E501
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 7, 8, 64, 1000, 10_001, 2**31 - 1, -1, -(2**31))
LARGE = (2**32, 2**53 + 1, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 0.5, 1.0, -1.0, 1e-300, 1e308, float("inf"), float("-inf"), float("nan"))
UNSIGNED = {FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED32,
            FieldDescriptor.TYPE_FIXED64}  # fmt: skip
WIDE = {FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64}  # fmt: skip
SOUND, BENT = (
    0.55,
    0.90,
)  # shares of requests that are well formed, and of those that at least began so
CALM = (0.3, 0.55, 0.8)  # how likely a field is set; drawn for each request


class Forger:
    """A stream of requests; two with the same seed and the same known names say the same."""

    def __init__(self, seed: str, known: Mapping[str, Sequence[str]]) -> None:
        """`known`: field name -> values that mean something at this cluster."""
        self._chance = random.Random(seed)
        self._known = known
        self._density = 0.5

    def choose(self, methods: Sequence[Method]) -> Method:
        """The next method to call."""
        return self._chance.choice(methods)

    def requests(self, method: Method) -> list[bytes]:
        """What to say to it: one request, or a few where the caller streams."""
        count = self._chance.randint(1, 5) if method.client_streams else 1
        return [self._request(method, first=number == 0) for number in range(count)]

    def rarely(self, once_in: int) -> bool:
        """True about once in so many times."""
        return self._chance.randrange(once_in) == 0

    def noise(self, most: int) -> bytes:
        """Bytes of any kind."""
        return self._chance.randbytes(self._chance.randint(0, most))

    def _request(self, method: Method, *, first: bool) -> bytes:
        kind = self._chance.random()
        if kind > BENT:
            return self.noise(600)
        descriptor = descriptor_pool.Default().FindMessageTypeByName(method.input_type)
        self._density = self._chance.choice(CALM)
        data = self.message(descriptor, 0, first=first).SerializeToString()
        return data if kind < SOUND else self.bend(data)

    # --- sound messages -----------------------------------------------------------------------

    def message(self, descriptor: Descriptor, depth: int, *, first: bool = False) -> Message:
        """One with some of its fields set. `first`: of a stream, whose opening comes before all
        else.
        """
        made: Any = GetMessageClass(descriptor)()
        chosen = {
            union.name: union.fields[0] if first and self._likely(0.8) else self._chance.choice(union.fields)  # noqa: E501
            for union in descriptor.oneofs
        }  # fmt: skip
        for field in descriptor.fields:
            union = field.containing_oneof
            if union is not None and len(union.fields) > 1 and chosen[union.name] is not field:
                continue
            if field.name in ("request_id", "command") or self._likely(self._density):
                self._fill(made, field, depth)
        sound: Message = made
        return sound

    def fill(self, message: Message, field: FieldDescriptor) -> None:
        """Give one field of a message any value."""
        self._fill(message, field, DEEPEST - 1)

    def _likely(self, share: float) -> bool:
        return self._chance.random() < share

    def _fill(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        try:
            if _is_map(field):
                self._fill_map(getattr(message, field.name), field)
            elif field.is_repeated:
                for _ in range(self._chance.choice((0, 1, 1, 2, 3, 40))):
                    self._append(getattr(message, field.name), field, depth)
            elif field.message_type is not None:
                if depth < DEEPEST:
                    inner = self.message(field.message_type, depth + 1)
                    getattr(message, field.name).CopyFrom(inner)
            else:
                setattr(message, field.name, self._scalar(field))
        except (ValueError, TypeError):
            pass  # a value that no message of this type can carry

    def _append(self, values: Any, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is None:
            values.append(self._scalar(field))
        elif depth < DEEPEST:
            values.append(self.message(field.message_type, depth + 1))

    def _fill_map(self, values: Any, field: FieldDescriptor) -> None:
        entry = field.message_type
        assert entry is not None, "a map has entries"
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        if value.message_type is None:
            values[self._scalar(key)] = self._scalar(value)

    def _scalar(self, field: FieldDescriptor) -> Any:
        if field.type == FieldDescriptor.TYPE_STRING:
            known = self._known.get(field.name, ())
            return self._chance.choice(known if known and self._likely(0.8) else TEXTS)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.noise(64)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self._likely(0.5)
        if field.enum_type is not None:
            numbers = [value.number for value in field.enum_type.values]
            return self._chance.choice([*numbers, *numbers, 2**31 - 1, -1])
        if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            return self._chance.choice(REALS)
        number = self._chance.choice(
            (*NUMBERS, *NUMBERS, *LARGE) if field.type in WIDE else NUMBERS
        )
        return abs(number) if field.type in UNSIGNED else number

    # --- bent bytes ---------------------------------------------------------------------------

    def bend(self, data: bytes) -> bytes:
        """The same with one to three wounds."""
        for _ in range(self._chance.randint(1, 3)):
            data = self._chance.choice((_flip, _cut, _repeat, _insert, _overflow, _nest))(
                data, self._chance
            )
        return data


def _flip(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randint(0, len(data))]


def _repeat(data: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] + data[at : at + 40] * chance.randint(2, 30) + data[at:]


def _insert(data: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] + chance.randbytes(chance.randint(1, 12)) + data[at:]


def _overflow(data: bytes, chance: random.Random) -> bytes:
    """A number of more than 64 bits, or a length beyond the end."""
    at = chance.randint(0, len(data))
    return data[:at] + b"\xff" * chance.randint(4, 12) + data[at:]


def _nest(data: bytes, chance: random.Random) -> bytes:
    """Messages within messages, deeper than any reader allows."""
    tag = bytes([(chance.randint(1, 15) << 3) | 2])
    for _ in range(chance.choice((3, 40, 120))):
        if len(data) > 16_000:
            break
        data = tag + _length(len(data)) + data
    return data


def _length(count: int) -> bytes:
    low, high = count & 0x7F, count >> 7
    return bytes([low | 0x80]) + _length(high) if high else bytes([low])


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
