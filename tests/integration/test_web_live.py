"""`dlq web` as a process, before real daemons: streams, a restarted master, and its own end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.harness import Daemons

pytestmark = pytest.mark.integration
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
