"""Parameters below `/v1`: their words, and how they enter a request of the master."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dlq_cli.lists.states import parse_states
from dlq_common.errors import InvalidRequest
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import parse_span
from dlq_common.text.wire import to_timestamp

MOST_AT_ONCE = 1_000  # items of a page
Enter = Callable[[Any, str], None]


class Param(NamedTuple):
    """A parameter in the query or in the path of a read."""

    name: str
    help: str
    enter: Enter
    field: str = ""  # of the request; a refusal of the master names it
    kind: str = "string"  # of JSON schema


def text(name: str, field: str, help_: str) -> Param:
    """A text that goes into a field as it is."""

    def enter(request: Any, value: str) -> None:
        setattr(request, field, value)

    return Param(name, help_, enter, field)


def texts(name: str, field: str, help_: str) -> Param:
    """Texts with commas between them."""

    def enter(request: Any, value: str) -> None:
        getattr(request, field).extend(filter(None, value.split(",")))

    return Param(name, help_, enter, field)


def states(name: str, field: str, help_: str) -> Param:
    """States of jobs, as `dlq status -t` takes them."""

    def enter(request: Any, value: str) -> None:
        try:
            getattr(request, field).extend(parse_states(value))
        except InvalidRequest as error:
            what = error.what.removeprefix("-t: ")
            raise InvalidRequest(what, field=name, hint=error.hint) from None

    return Param(name, help_, enter, field)


def choice(name: str, field: str, help_: str, words: Sequence[str]) -> Param:
    """One of some words."""

    def enter(request: Any, value: str) -> None:
        if value not in words:
            near = did_you_mean(value, words)
            raise InvalidRequest(
                f"{name} is not {value[:64]!r}{near}", field=name, hint=", ".join(words)
            )
        setattr(request, field, value)

    return Param(name, f"{', '.join(words)}. {help_}", enter, field)


def span(name: str, field: str, help_: str) -> Param:
    """A span such as `2d`, told in whole seconds; `all` leaves the field unset."""

    def enter(request: Any, value: str) -> None:
        if value == "all":
            request.ClearField(field)
            return
        try:
            setattr(request, field, round(parse_span(value)))
        except ValueError:
            raise InvalidRequest(
                f"{name}: {value[:64]!r} is no span", field=name, hint="write 2d, 90m or all"
            ) from None

    return Param(name, help_, enter, field)


def instant_at(name: str, field: str, help_: str) -> Param:
    """An instant such as `2026-12-01T08:00Z`."""

    def enter(request: Any, value: str) -> None:
        try:
            instant = datetime.fromisoformat(value)
            if instant.tzinfo is None:
                raise ValueError
            getattr(request, field).CopyFrom(to_timestamp(instant.timestamp()))
        except (ValueError, OverflowError):
            raise InvalidRequest(
                f"{name}: {value[:64]!r} is no instant", field=name,
                hint="write 2026-12-01T08:00Z",
            ) from None  # fmt: skip

    return Param(name, help_, enter, field)


def whole(name: str, field: str, help_: str, *, least: int = 0, most: int = 2**31 - 1) -> Param:
    """A whole number."""

    def enter(request: Any, value: str) -> None:
        setattr(request, field, whole_number(name, value, least, most))

    return Param(name, help_, enter, field, "integer")


def flag(name: str, field: str, help_: str) -> Param:
    """True or false."""

    def enter(request: Any, value: str) -> None:
        if value not in ("true", "false", "1", "0"):
            raise InvalidRequest(f"{name} is true or false", field=name)
        setattr(request, field, value in ("true", "1"))

    return Param(name, help_, enter, field, "boolean")


def whole_number(name: str, value: str, least: int, most: int) -> int:
    """The number in a text; InvalidRequest for another text, and outside of the bounds."""
    digits = value.removeprefix("-")
    fits = digits.isascii() and digits.isdigit() and len(digits) < 20
    if not fits or not least <= int(value) <= most:
        raise InvalidRequest(f"{name} is a whole number from {least} to {most}", field=name)
    return int(value)


PAGE = (
    whole("limit", "page_size", "Items of a page.", least=1, most=MOST_AT_ONCE),
    text("cursor", "page_token", "`next_cursor` of the page before."),
)


def by_parameter(params: Sequence[Param], error: InvalidRequest) -> InvalidRequest:
    """The same refusal, with the parameter instead of the field that it entered."""
    name = next((param.name for param in params if param.field == error.field), "")
    if name in ("", error.field):
        return error
    return InvalidRequest(error.what, field=name, hint=error.hint)


def fill(request: Any, params: Sequence[Param], given: Mapping[str, str]) -> None:
    """Enter what is given. InvalidRequest names a parameter that nobody knows."""
    known = {param.name: param for param in params}
    for name, value in given.items():
        if name not in known:
            near = did_you_mean(name, known)
            raise InvalidRequest(
                f"there is no parameter {name[:64]!r}{near}",
                field=name[:64],
                hint="parameters: " + ", ".join(known) if known else "it takes none",
            )
        known[name].enter(request, value)
