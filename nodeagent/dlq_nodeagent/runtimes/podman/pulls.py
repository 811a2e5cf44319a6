"""The queue of pulls: few at once, fewer of one user, and none without a waiting rank.

A registry may hang for as long as a pull may take, and a user can name as many as they like. So
pulls have threads of their own; ranks that wait for one have none.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.mistakes import LaunchRefused, UserMistake
from dlq_nodeagent.runtimes.podman.pull import NotWanted, PullEnding, Say

Done = Callable[[Exception | None], None]

log = get_logger("nodeagent.pulls")


class PullWish(NamedTuple):
    """An image for a user. `secret` names the credential of its registry; empty: none."""

    image: str
    user: str
    secret: str = ""


class ImageWanted(Exception):
    """Before a rank can start, an image must be pulled, or its user show that they may."""

    def __init__(self, wish: PullWish) -> None:
        super().__init__(f"{wish.image} is not here for {wish.user}")
        self.wish = wish


class _Asker(NamedTuple):
    say: Say
    done: Done


@dataclass(slots=True)
class _Pull:
    wish: PullWish
    askers: dict[RankKey, _Asker] = field(default_factory=dict)
    ending: PullEnding = field(default_factory=PullEnding)
    runs: bool = False

    def say(self, detail: str) -> None:
        for asker in list(self.askers.values()):
            asker.say(detail)


@dataclass(slots=True, kw_only=True)
class Pulls:
    """All pulls of a node. Thread-safe; no call waits for a pull, and answers come from any thread.

    `fetch` does one and may take long. At most `most` run at a time, `most_of_user` of one user,
    and one of an image. Among the waiting pulls, the user with the fewest running comes first.
    """

    fetch: Callable[[PullWish, Say, PullEnding], None]
    most: int = 4
    most_of_user: int = 2
    _pulls: list[_Pull] = field(default_factory=list)
    _closed: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def want(self, key: RankKey, wish: PullWish, say: Say, done: Done) -> None:
        """A rank waits for an image: `done` gets None when the user may use it, or the refusal."""
        say(f"waiting to pull {wish.image}")
        with self._lock:
            pull = next((it for it in self._pulls if it.wish == wish and not it.ending.over), None)
            if pull is None:
                pull = _Pull(wish)
                self._pulls.append(pull)
            pull.askers[key] = _Asker(say, done)
            self._begin()

    def unwant(self, key: RankKey) -> None:
        """A rank waits no more; a pull for it alone is ended. No effect when it does not wait."""
        with self._lock:
            gone = [(it, it.askers.pop(key)) for it in self._pulls if key in it.askers]
            for pull, _ in gone:
                if not pull.askers:
                    self._drop(pull)
        for pull, asker in gone:
            asker.done(NotWanted(f"nobody waits for {pull.wish.image} any more"))

    def close(self) -> None:
        """End all pulls; wholly fetched layers are kept. The ranks that wait are not answered: they
        are the next agent's, and have not failed.
        """
        with self._lock:
            self._closed = True
            for pull in list(self._pulls):
                pull.askers.clear()
                self._drop(pull)

    # ---- inside, with the lock held

    def _drop(self, pull: _Pull) -> None:
        log.info("pull_dropped", image=pull.wish.image, user=pull.wish.user, ran=pull.runs)
        pull.ending.end()
        if not pull.runs:
            self._pulls.remove(pull)

    def _begin(self) -> None:
        while not self._closed and (pull := self._next()) is not None:
            pull.runs = True
            threading.Thread(target=self._run, args=(pull,), name="pull", daemon=True).start()

    def _next(self) -> _Pull | None:
        running = [it for it in self._pulls if it.runs]
        if len(running) >= self.most:
            return None
        images = {it.wish.image for it in running}
        users = [it.wish.user for it in running]
        waiting = [
            it
            for it in self._pulls
            if not it.runs
            and it.wish.image not in images
            and users.count(it.wish.user) < self.most_of_user
        ]
        return min(waiting, key=lambda it: users.count(it.wish.user), default=None)

    # ---- a pull's own thread

    def _run(self, pull: _Pull) -> None:
        error: Exception | None = None
        try:
            self.fetch(pull.wish, pull.say, pull.ending)
        except (UserMistake, LaunchRefused, OSError) as refused:
            error = refused
        except (
            Exception
        ) as raised:  # a fault of ours: the waiting ranks must hear of it all the same
            log.exception("pull_failed", image=pull.wish.image)
            error = raised
        with self._lock:
            self._pulls.remove(pull)
            askers = list(pull.askers.values())
            self._begin()
        for asker in askers:
            asker.done(error)
