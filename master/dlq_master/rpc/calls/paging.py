"""Pages of long lists: how large, and where the next one begins."""

from __future__ import annotations

from dlq_common.errors import InvalidRequest
from dlq_common.text.names import shown

DEFAULT_PAGE = 1_000
LARGEST_PAGE = 10_000
LARGEST_POSITION = 2**63 - 2  # the one after it is still an integer of the database


def page_size_of(asked: int) -> int:
    """How many to return: 0 means the default; more than the most is cut to it."""
    if asked < 0:
        raise InvalidRequest("page_size is negative", field="page_size")
    return min(asked or DEFAULT_PAGE, LARGEST_PAGE)


def position_of(token: str) -> int:
    """The meaning of a page token of a list ordered by number: the last number shown, or 0."""
    if not token:
        return 0
    if not (token.isascii() and token.isdecimal() and len(token) <= 19) or (
        int(token) > LARGEST_POSITION
    ):
        raise InvalidRequest(f"{shown(token)} is not a page token", field="page_token")
    return int(token)
