"""Certificates that are made worthless before their end: one by its serial, or all of a user or a
node that were signed so far.

The rows are stored, so a restart of the master keeps them. The door asks them at each call, and
open streams are looked at right after the commit (`rpc/calls/open_calls.py`). An agent that is cut
off is a silent agent. Its jobs go on for their leases, and it may join again with a new token.
"""

from __future__ import annotations

import math
import re
from typing import Final

from dlq_common.errors import InvalidRequest, NotFound
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import Revocation, RevokeCertificates
from dlq_master.model.ids import NodeId
from dlq_master.store.tables.revocations import NODE, SERIAL, USER, subject_of

_SERIAL: Final = re.compile(r"[0-9a-f]{1,40}")


def _is_there(turn: Turn, _ask: RevokeCertificates, word: str) -> bool:
    return word in turn.state.people.revocations


def _as_stored(turn: Turn, _ask: RevokeCertificates, word: str) -> Revocation:
    return turn.state.people.revocations[word]


@once(_as_stored, still=_is_there)
def revoke(turn: Turn, ask: RevokeCertificates) -> Done[Revocation]:
    """Make them worthless from now on. NotFound for a user or node that is not there.

    Dates in certificates are whole seconds. So the next good one is of the next second.
    """
    _check(turn, ask.subject)
    row = Revocation(
        subject=ask.subject,
        time_s=turn.now_s,
        good_from_s=math.floor(turn.now_s) + 1.0,
        by=ask.caller.name,
        reason=ask.reason,
    )
    turn.put(turn.state.people.revocations, row)
    turn.note("certificates_revoked", actor=ask.caller.actor, whose=row.subject, reason=row.reason)
    return Done(row, row.subject)


def leave(turn: Turn, kind: str, name: str) -> None:
    """The user or node is gone, and with them all of their certificates."""
    subject = subject_of(kind, name)
    if subject in turn.state.people.revocations:
        turn.drop(turn.state.people.revocations, subject)


def _check(turn: Turn, subject: str) -> None:
    kind, _, name = subject.partition(":")
    if kind == SERIAL and _SERIAL.fullmatch(name):
        return
    if kind == USER:
        if name not in turn.state.people.users:
            raise NotFound(f"there is no user {name}", kind="user", id=name)
    elif kind == NODE:
        if NodeId(name) not in turn.state.cluster.nodes:
            raise NotFound(f"there is no node {name}", kind="node", id=name)
    else:
        raise InvalidRequest("a serial has at most 40 hexadecimal digits", field="serial")
