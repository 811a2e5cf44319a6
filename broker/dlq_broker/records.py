"""The record of each hand-over: a file, written whole and synced before the next step.

The directory is closed to other users, because a spec may hold secrets. `NUMBER.json` is a
hand-over. `NUMBER.lock` lets one process at a time go on with it. After a kill either the former or
the new record is there.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from dlq_broker.doors import JobWait, WaitState
from dlq_broker.handover import BeforeMove, HandOver, HandOverState, MovingJob, NextAct
from dlq_broker.offers import answer_facts, answer_from
from dlq_common.errors import ConfigError, TryAgain

DIRECTORY = "handovers"
_VERSION = 1
# Ended ones are told to repeats as long as masters know their keys.
KEPT_S = 7 * 86_400.0


class HandOverRecords(Protocol):
    """The port to the records. Each method is done when it returns."""

    def read(self, number: str) -> HandOver | None: ...
    def write(self, hand: HandOver) -> None: ...
    @contextmanager
    def held(self, number: str) -> Iterator[None]:
        """Hold a hand-over. TryAgain: another process goes on with it."""
        ...


class HandOverFiles:
    """The records of one user in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, number: str) -> HandOver | None:
        """The hand-over with this number; None: there is none. ConfigError: its file is damaged."""
        path = self._directory / f"{number}.json"
        try:
            return _hand_from(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}", source=path) from None
        except (KeyError, TypeError, ValueError) as error:
            what = f"{path} is damaged: {type(error).__name__}"
            hint = "its job may be at one of the clusters that it names; look there, and remove it"
            raise ConfigError(what, hint=hint, source=path) from None

    def write(self, hand: HandOver) -> None:
        """Replace the record. OSError: it is unchanged."""
        self._made()
        path = self._directory / f"{hand.number}.json"
        temporary = path.with_suffix(".next")
        with os.fdopen(os.open(temporary, _FLAGS, 0o600), "wb") as file:
            file.write(json.dumps(_facts(hand), indent=1).encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        self._sync()

    def all(self) -> list[HandOver]:
        """All records, the oldest first."""
        names = sorted(path.stem for path in self._directory.glob("*.json"))
        found = [hand for name in names if (hand := self.read(name)) is not None]
        return sorted(found, key=lambda hand: (hand.made_s, hand.number))

    def forget_old(self, now_s: float) -> None:
        """Remove ended hand-overs that no repeat will ask for."""
        for hand in self.all():
            if not hand.is_open and now_s - hand.made_s > KEPT_S:
                (self._directory / f"{hand.number}.json").unlink(missing_ok=True)
                (self._directory / f"{hand.number}.lock").unlink(missing_ok=True)

    @contextmanager
    def held(self, number: str) -> Iterator[None]:
        self._made()
        descriptor = os.open(self._directory / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Not flock: homes on NFS have locks of bytes only.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise TryAgain(f"another process goes on with hand-over {number}") from None
        try:
            yield
        finally:
            os.close(descriptor)

    def _made(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _sync(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def _facts(hand: HandOver) -> dict[str, Any]:
    return {
        "v": _VERSION,
        "number": hand.number,
        "made_s": hand.made_s,
        "name": hand.name,
        "digest": hand.digest,
        "spec": base64.b64encode(hand.spec).decode(),
        "order": hand.order,
        "sites": hand.sites,
        "answers": [answer_facts(answer) for answer in hand.answers],
        "reasons": hand.reasons,
        "place": hand.place,
        "tries": hand.tries,
        "act": hand.act,
        "state": hand.state,
        "job": hand.job,
        "moving": hand.moving,
        "story": hand.story,
        "wait": hand.wait,
        "wanted": hand.wanted,
        "unused": hand.unused,
    }


def _hand_from(facts: dict[str, Any]) -> HandOver:
    if facts["v"] != _VERSION:
        raise ValueError("it was written by another release")
    return HandOver(
        number=facts["number"],
        made_s=float(facts["made_s"]),
        name=facts["name"],
        digest=facts["digest"],
        spec=base64.b64decode(facts["spec"], validate=True),
        order=tuple(facts["order"]),
        sites=tuple(facts["sites"]),
        answers=tuple(answer_from(answer) for answer in facts["answers"]),
        reasons=tuple((cluster, why) for cluster, why in facts["reasons"]),
        place=int(facts["place"]),
        tries=int(facts["tries"]),
        act=NextAct(facts["act"]),
        state=HandOverState(facts["state"]),
        job=facts["job"],
        moving=_moving_from(facts["moving"]),
        story=tuple(facts["story"]),
        wait=_wait_from(facts.get("wait")),
        wanted=bool(facts.get("wanted", True)),
        unused=int(facts.get("unused", 0)),
    )


def _moving_from(facts: list[Any] | None) -> MovingJob | None:
    """The moving job. Records of the first release know waiting jobs only."""
    if facts is None:
        return None
    cluster, site, job, version, *before = facts
    return MovingJob(cluster, site, job, int(version), BeforeMove(*before or ["waits"]))


def _wait_from(facts: list[Any] | None) -> JobWait | None:
    """The wait. Records of the first release have none."""
    return None if facts is None else JobWait(WaitState(facts[0]), float(facts[1]))
