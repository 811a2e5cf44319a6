"""Where the pages of an ordered list begin.

A page token names the order and the place of the last shown job. So jobs that come or go between
two pages shift nothing. For the order by number, tokens are plain numbers, as they have always
been.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import Any, Final

from dlq_common.errors import InvalidRequest
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean
from dlq_master.control.read_model.published import Published
from dlq_master.rpc.calls.call import LARGEST_POSITION
from dlq_master.rpc.jobs.visible import NAMED
from dlq_master.store.list_order import BY_NUMBER, KEYS, ListOrder, Rank

LONGEST_TOKEN: Final = 2_000


def order_of(word: str) -> ListOrder:
    """The order with this name, "": by number. InvalidRequest: there is no such order."""
    key = word.removeprefix("-") or ("number" if not word else "")
    if key not in KEYS:
        raise InvalidRequest(
            f"no list is ordered by {shown(word)}{did_you_mean(key, KEYS)}",
            field="order",
            hint=f"orders: {', '.join(KEYS)}; with - before it the order falls",
        )
    return ListOrder(key, word.startswith("-"))


def is_hidden(order: ListOrder, read: Published) -> bool:
    """Whether users do not see the value of this order for other users' jobs."""
    return order.key == "priority" or (order.key == "user" and read.others_shown != NAMED)


def token_of(order: ListOrder, last: Rank) -> str:
    """The token of the page behind this place."""
    if order == BY_NUMBER:
        return str(last[2])
    told = json.dumps(last, separators=(",", ":")).encode()
    return f"{order.word}.{urlsafe_b64encode(told).decode()}"


def place_of(order: ListOrder, token: str) -> Rank | None:
    """The place in a token of this order; None: no token. InvalidRequest: a token of
    another order.
    """
    if not token:
        return None
    word, _, told = token.partition(".")
    try:
        if word != order.word or len(token) > LONGEST_TOKEN:
            raise ValueError("of another order")
        missing, value, number = json.loads(urlsafe_b64decode(told.encode("ascii")))
        return _checked(order, missing, value, number)
    except (ArithmeticError, ValueError, TypeError, RecursionError, Error):
        raise InvalidRequest(
            f"{shown(token)} is not a page token of this order", field="page_token"
        ) from None


def _checked(order: ListOrder, missing: Any, value: Any, number: Any) -> Rank:
    """The rank. ValueError: no job can have it."""
    signed = -number if order.falling else number
    if type(missing) is not bool or type(number) is not int or not 0 < signed <= LARGEST_POSITION:
        raise ValueError("no place")
    if missing or order.key != "user":
        if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > 1e15:
            raise ValueError("no number")
        return missing, value, number
    if not order.falling:
        if type(value) is not str:
            raise ValueError("no text")
        value.encode()
        return missing, value, number
    codes = tuple(value)
    if not codes or any(type(code) is not int for code in codes) or codes[-1] != 1:
        raise ValueError("no text")
    "".join(chr(-code) for code in codes[:-1]).encode()
    return missing, codes, number
