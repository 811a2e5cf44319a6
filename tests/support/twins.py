"""A twin without a process: the real answers, or what a broken one would do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from dlq_master.control.forecast.twin_process import TwinGone, TwinHangs
from dlq_master.planner.answers import read_answer
from dlq_master.planner.questions import read_question
from dlq_simulator.twin.answering import Answering


class NearTwin:
    """`broken`: "gone", "hangs", or bytes that it says instead of an answer."""

    def __init__(self) -> None:
        self._answering = Answering()
        self.left = 0
        self.broken: str | Mapping[str, Any] = ""
        self.asked: list[str] = []
        self.restarts: list[str] = []

    async def ask(self, number: int, question: bytes, patience_s: float) -> Mapping[str, Any]:
        asked = read_question(question)
        assert asked.number == number
        self.asked.append(asked.do)
        await asyncio.sleep(0)  # as one in a process does: others come meanwhile
        if self.broken == "gone":
            raise TwinGone("it was killed")
        if self.broken == "hangs":
            raise TwinHangs("it does nothing")
        if self.broken:
            answer = json.dumps({"number": number, **self.broken}).encode()  # type: ignore[dict-item]  # a mapping by now
        else:
            answer = self._answering.answer(asked)
        told, content = read_answer(answer)
        assert told == number
        return content

    async def restart(self, why: str) -> None:
        self.restarts.append(why)
        self._answering = Answering()

    async def leave(self) -> None:
        self.left += 1
        self._answering = Answering()
