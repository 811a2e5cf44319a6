"""Runs one program for the master, in an account that owns no key: `python -m
dlq_master.providers.runner`, with the connection as standard input.

systemd starts one for each connection of `dlq-provider.socket`, which only the master may open. One
line of JSON comes, `{"words": [...], "text": "...", "timeout_s": 60}`, and one goes back. When the
master is gone, this process ends, and its leash kills the program.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from threading import Thread
from typing import Any

from dlq_master.providers.calls import MOST_BYTES, call
from dlq_master.providers.port import ProviderFailed

LONGEST_LINE = 2 * MOST_BYTES


def main() -> None:
    """Serve the connection that is standard input."""
    with socket.socket(fileno=os.dup(0)) as line:
        with line.makefile("rb") as heard:
            asked = heard.readline(LONGEST_LINE)
        Thread(target=_end_with_the_asker, args=(line.fileno(),), daemon=True).start()
        answer = answer_to(asked)
        line.sendall(json.dumps(answer).encode() + b"\n")
    os._exit(0)  # the thread still reads


def answer_to(asked: bytes) -> Mapping[str, Any]:
    """The output of the program or its failure, and the account in which it ran."""
    told: dict[str, Any] = {"uid": os.getuid()}
    try:
        wanted = json.loads(asked)
        words = [str(word) for word in wanted["words"]]
        text, timeout_s = str(wanted["text"]), float(wanted["timeout_s"])
    except (ValueError, KeyError, TypeError):
        return told | {"failed": "the request makes no sense"}
    try:
        return told | {"out": call(words, text=text, timeout_s=timeout_s)}
    except ProviderFailed as error:
        return told | {"failed": str(error)}


def _end_with_the_asker(descriptor: int) -> None:
    """Nothing more comes: the end of what can be read is the end of the asker."""
    while True:
        try:
            if not os.read(descriptor, 4096):
                break
        except OSError:
            break
    os._exit(1)


if __name__ == "__main__":
    main()
