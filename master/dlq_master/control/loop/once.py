"""Requests take effect once: a repeat gets its answer from the stored result of the first.

The request id and a digest of the request are stored with the effect, in one transaction. So a
repeat is known after a restart of the master too (`Turn.replay`, `Turn.remember`).
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, NamedTuple, TypeVar, cast

from dlq_master.control.loop.turn import OnceRequest, Turn

Ask = TypeVar("Ask", bound=OnceRequest)
Answered = TypeVar("Answered")


class Done(NamedTuple, Generic[Answered]):
    """The answer to a request that took effect, and the word that is stored for repeats."""

    answer: Answered
    word: object


def nothing(_turn: Turn, _ask: object, _word: str) -> None:
    """For `again`: the answer to a repeat is None."""


def once(
    again: Callable[[Turn, Any, str], Answered],
    still: Callable[[Turn, Any, str], bool] = lambda _turn, _ask, _word: True,
) -> Callable[[Callable[[Turn, Ask], Answered | Done[Answered]]], Callable[[Turn, Ask], Answered]]:
    """Make a handler take each request once.

    The handler returns `Done`, or only an answer if a repeat may be handled like a new request.
    `again` answers a repeat from the stored word and the present state. If `still` is false, the
    effect of the first request is gone, and a repeat is handled like a new request.
    """

    def decorate(
        handler: Callable[[Turn, Ask], Answered | Done[Answered]],
    ) -> Callable[[Turn, Ask], Answered]:
        @wraps(handler)
        def handle(turn: Turn, ask: Ask) -> Answered:
            word = turn.replay(ask)
            if word is not None and still(turn, ask, word):
                return again(turn, ask, word)
            done = handler(turn, ask)
            if isinstance(done, Done):
                turn.remember(ask, done.word)
                return cast(Answered, done.answer)
            return done

        return handle

    return decorate
