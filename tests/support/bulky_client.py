"""A command inside a job as `dlq ssh` runs one: its bytes go through the relay. As a program:

    python -m support.bulky_client JOB COMMAND...

Its stdin and stdout are the command's. On stderr it says which way the bytes go.
"""

from __future__ import annotations

import os
import sys
import threading

from dlq_client.inside.command import CommandInside
from dlq_client.line.connection import connect
from dlq_common.errors import DlqError


def say(words: str) -> None:
    """One line."""
    os.write(2, f"{words}\n".encode())


def main() -> int:
    """The exit code of the command; 69 and words where it is not known."""
    job_id, *command = sys.argv[1:]
    inside = CommandInside(
        connect(), job_id, command,
        kept=True, comes_back=True, bulky=True, tell=say, tell_more=say,
    )  # fmt: skip

    def bring() -> None:
        while data := os.read(0, 65_536):
            inside.stdin(data)
        inside.end_stdin()

    threading.Thread(target=bring, daemon=True).start()
    try:
        for output in inside.outputs():
            if output.HasField("ended"):
                ended = output.ended
                if ended.rank_ended:
                    say("the rank has ended")
                return 128 + ended.signal if ended.signal else ended.exit_code
            os.write(1, output.stdout)
            os.write(2, output.stderr)
    except DlqError as error:
        say(str(error))
    return 69


if __name__ == "__main__":
    os._exit(main())  # its thread may stand in a read of stdin
