"""`dlq web` as a process, before real daemons: streams, a restarted master, and its own end."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("integration/test_web_streams.py", "unit/web/test_feed.py"),
]
BIN = Path(sys.executable).parent
PATIENCE_S = 60.0
SAYS = 'for i in $(seq 100); do echo "line $i"; sleep 0.1; done'


@contextmanager
def web_of(daemons: Daemons) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process of `dlq web`, and its link."""
    process = subprocess.Popen(
        [BIN / "dlq", "web"], env=os.environ | daemons.environment(), stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        found = re.search(r"open (\S+)", process.stderr.readline())
        assert found is not None
        yield process, found[1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def program(daemons: Daemons) -> httpx.Client:
    told = json.loads((daemons.root / "home" / "web.json").read_text())
    headers = {"authorization": f"Bearer {told['token']}", "accept": "application/x-ndjson"}
    return httpx.Client(base_url=told["address"], headers=headers, timeout=PATIENCE_S)


def test_a_page_and_its_streams_outlive_the_master(tmp_path: Path) -> None:
    with (
        Daemons(tmp_path, ("n1",)).up() as daemons,
        web_of(daemons) as (process, link),
        httpx.Client(follow_redirects=True, timeout=PATIENCE_S) as browser,
    ):
        daemons.said("submit", "-G", "1", "--name", "talks", "--", "sh", "-c", SAYS)
        assert "talks" in browser.get(link).text
        with program(daemons) as client, client.stream("GET", "/v1/events?after=0") as stream:
            lines = (json.loads(line)["event"] for line in stream.iter_lines() if line)
            while next(lines)["kind"] != "job_submitted":
                pass
            with client.stream("GET", "/v1/jobs/1/logs?follow=true") as output:
                pieces = (json.loads(line) for line in output.iter_lines())
                text = ""
                while text.count("\n") < 3:
                    text += next(pieces)["text"]
            assert text.startswith("line 1\nline 2\nline 3\n")
            seen = [next(lines)["sequence"]]
            daemons.kill("master")
            assert browser.get(link.partition("/enter")[0] + "/").status_code == 503
            daemons.start("master")
            daemons.wait_for("master")
            daemons.said("submit", "-G", "1", "--", "true")
            while True:
                event = next(lines)
                seen.append(event["sequence"])
                if event["kind"] == "job_submitted":
                    break
            assert seen == sorted(set(seen))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert not (daemons.root / "home" / "web.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_it_leaves_at_once_and_in_order_while_pages_are_open(
    tmp_path: Path, number: signal.Signals
) -> None:
    """By Ctrl-C, and with the terminal: no trace on the screen, and no token left behind."""
    with (
        Daemons(tmp_path, ()).up() as daemons,
        web_of(daemons) as (process, _),
        program(daemons) as client,
        client.stream("GET", "/v1/events") as stream,
    ):
        assert stream.status_code == 200
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert "ssh -L" in process.stderr.readline()
        assert process.stderr.read() == ""
        assert not (daemons.root / "home" / "web.json").exists()


ALONE = """
import subprocess, sys
with open(sys.argv[1], "w") as said:
    job = subprocess.Popen(sys.argv[2:], stderr=said, process_group=0)
    print(job.pid, file=open(sys.argv[1] + ".pid", "w"), flush=True)
    job.wait()
"""


def test_in_the_background_of_a_terminal_it_serves(tmp_path: Path) -> None:
    """`dlq web &`: a background job that reads its terminal would be stopped."""
    with Daemons(tmp_path, ()).up() as daemons:
        said, environment = tmp_path / "said", os.environ | daemons.environment()
        shell, terminal = pty.fork()
        if shell == 0:  # pragma: no cover - another process
            words = [sys.executable, "-c", ALONE, str(said), str(BIN / "dlq"), "web"]
            os.execve(sys.executable, words, environment)
        token_file = daemons.root / "home" / "web.json"
        try:
            wait_until(token_file.exists, what="it serves", timeout_s=PATIENCE_S)
            wait_until(lambda: "ssh -L" in said.read_text(), what="it says so", timeout_s=30)
            with program(daemons) as client:
                for _ in range(5):
                    assert client.get("/livez", timeout=10.0).status_code == 200
                    time.sleep(0.1)
        finally:
            job = int((tmp_path / "said.pid").read_text())
            os.kill(job, signal.SIGTERM)
            os.kill(job, signal.SIGCONT)
            os.waitpid(shell, 0)
            os.close(terminal)
        wait_until(lambda: not token_file.exists(), what="it has left", timeout_s=PATIENCE_S)
