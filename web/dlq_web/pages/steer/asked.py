"""The body of a request from a page: JSON with known keys alone, each of a known kind.

A page and its server are of one version, so a strange key is a mistake of a program. It is refused
by its name, as the API refuses a strange parameter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from dlq_common.errors import InvalidRequest

_KEY = re.compile(r"[!-~]{1,40}", re.ASCII)
_KINDS = {str: "a text", int: "a whole number", bool: "true or false", list: "a list of texts"}


async def asked(http: Request, fields: Mapping[str, type]) -> dict[str, Any]:
    """The body, with an empty value for each key that is left out. Raises InvalidRequest."""
    try:
        told = json.loads(await http.body() or b"{}")
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is no JSON") from None
    if not isinstance(told, dict):
        raise InvalidRequest("the body is no JSON object")
    for name in told:
        if name not in fields:
            raise InvalidRequest(
                f"there is no key {name[:64]!r}", field=name[:64], hint=f"keys: {', '.join(fields)}"
            )
    return {name: _checked(name, told.get(name, kind()), kind) for name, kind in fields.items()}


def key_of(told: Mapping[str, Any]) -> str:
    """The idempotency key of the page; with a suffix it still fits the master's 64 characters."""
    key = str(told["key"])
    if not _KEY.fullmatch(key):
        raise InvalidRequest("`key` has 1 to 40 printable ASCII characters", field="key")
    return key


def _checked(name: str, value: Any, kind: type) -> Any:
    texts = kind is not list or all(isinstance(one, str) for one in value or ())
    if type(value) is not kind or not texts:
        raise InvalidRequest(f"`{name}` is {_KINDS[kind]}", field=name)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"`{name}` is not UTF-8", field=name) from None
    return value
