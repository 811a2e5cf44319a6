"""The twin's pipes: frames of questions and answers, until the master closes the first pipe."""

from __future__ import annotations

import os
import select

from dlq_master.planner.frames import HEAD, framed, length_of
from dlq_master.planner.questions import Question, read_question
from dlq_simulator.twin.answering import Answering


class Gone(SystemExit):
    """The master has closed the pipe, or is dead: it needs no answer."""


class Serving:
    """Answers in the order of the questions; but a short question does not wait for a long one."""

    def __init__(self, questions: int, answers: int) -> None:
        """File descriptors of the pipes."""
        self._questions, self._answers = questions, answers
        self._answering = Answering()

    def run(self, greeting: bytes) -> None:
        """Send the greeting, then answer until the pipe is closed."""
        try:
            self._write(greeting)
            while True:
                self._write(self._answering.answer(self._read(), self._attend))
        except (Gone, BrokenPipeError):
            return

    def _attend(self) -> None:
        """In a long answer: look for another question, and whether the master is gone."""
        if select.select([self._questions], [], [], 0.0)[0]:
            self._write(self._answering.answer(self._read()))

    def _read(self) -> Question:
        length = length_of(self._exactly(HEAD))
        return read_question(self._exactly(length))

    def _exactly(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = os.read(self._questions, min(count, 1 << 20))
            if not part:
                raise Gone
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _write(self, content: bytes) -> None:
        rest = memoryview(framed(content))
        while rest:
            rest = rest[os.write(self._answers, rest) :]
