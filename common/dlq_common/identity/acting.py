"""A service that acts for a user: the metadata that it sends beside its own certificate.

Only the role `web` may act for anybody, and the master decides for whom. The user's rights at the
moment of each call hold, not those of the service. Groups of an issuer, which the service has
verified, may give more; the master's own configuration says what.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from dlq_common.errors import InvalidRequest
from dlq_common.text.names import check_user_name

FOR, ROLE, SINCE, SHOWN = "dlq-acts-for", "dlq-acts-as", "dlq-acts-since", "dlq-acts-shown"
GROUPS = "dlq-acts-groups"  # a list of texts in JSON
_KEYS = frozenset({FOR, ROLE, SINCE, SHOWN, GROUPS})
MOST_GROUPS, LONGEST_GROUP = 32, 128
_FORM = "a call for a user names one user, and at most one role, one time and one certificate"
_SHOWN = re.compile(r"[0-9a-f]{1,40}(\.[0-9a-f]{1,64})?")


class ActsFor(NamedTuple):
    """The user, and what was true when they signed in: it must be true still."""

    name: str
    role: str = ""  # "": the present one
    since_s: float | None = None  # by the master's clock; None: now
    groups: tuple[str, ...] = ()  # of the issuer at which the user signed in
    shown: str = ""  # serial and signer of the certificate with which they signed in; "": none

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call."""
        told = [(FOR, self.name)]
        if self.role:
            told.append((ROLE, self.role))
        if self.since_s is not None:
            told.append((SINCE, repr(float(self.since_s))))
        if self.groups:
            told.append((GROUPS, json.dumps(self.groups)))
        if self.shown:
            told.append((SHOWN, self.shown))
        return tuple(told)


def acts_for(metadata: Iterable[tuple[str, str | bytes]]) -> ActsFor | None:
    """The user for whom a call is made; None: for the caller. InvalidRequest: it makes no sense."""
    told = [(key, value) for key, value in metadata if key in _KEYS]
    if not told:
        return None
    values = {key: str(value) for key, value in told}
    if FOR not in values or len(values) < len(told):
        raise InvalidRequest(_FORM, field=FOR)
    try:
        since_s = float(values[SINCE]) if SINCE in values else None
    except ValueError:
        raise InvalidRequest(_FORM, field=SINCE) from None
    if since_s is not None and not math.isfinite(since_s):
        raise InvalidRequest(_FORM, field=SINCE)
    shown, groups = values.get(SHOWN, ""), _groups(values.get(GROUPS, "[]"))
    if shown and not _SHOWN.fullmatch(shown):
        raise InvalidRequest(_FORM, field=SHOWN)
    try:
        return ActsFor(check_user_name(values[FOR]), values.get(ROLE, ""), since_s, groups, shown)
    except ValueError as error:
        raise InvalidRequest(str(error), field=FOR) from None


def is_group(name: object) -> bool:
    """Whether this can be the name of a group."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_GROUP and name.isprintable()


def _groups(text: str) -> tuple[str, ...]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, list) or len(told) > MOST_GROUPS or not all(map(is_group, told)):
        raise InvalidRequest(_FORM, field=GROUPS)
    return tuple(told)
