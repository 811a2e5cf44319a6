"""`dlq forward` where client, master and agent are of different releases.

One of `unrelayed` knows no relay. The lines of `first-relay` have another greeting. In all mixes
bytes pass at once, through the master, and the client says nothing but that to people who asked.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.echo_jobs import connected, echoed, echoing
from support.two_releases import (
    FIRST_RELAY,
    PRESENT,
    UNRELAYED,
    NoHistory,
    Releases,
    former_release,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/client/test_relay_releases.py"),
]
FORMER, OURS = "n1", "n2"


@pytest.fixture(scope="module", params=[UNRELAYED, FIRST_RELAY])
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Releases, str]]:
    """A master of a former release with an agent of that and one of this tree."""
    release = str(request.param)
    try:
        former = {release: former_release(release)}
    except NoHistory as error:
        pytest.skip(str(error))
    made = Releases(tmp_path_factory.mktemp("mixed"), former, release)
    made.releases[OURS] = PRESENT
    with made.up():
        yield made, release


@contextmanager
def forwarded_by(
    daemons: Releases, release: str, job_id: str, port: int
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A forward by a client of that release. One that knows a relay says which way bytes go."""
    words, environment = daemons.client(release)
    flags = [] if release == UNRELAYED else ["--verbose"]
    process = subprocess.Popen(
        [*words, "forward", *flags, job_id, f"{port}:0"],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        bufsize=0, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 60.0)
        assert ready, "it says nothing"
        line = process.stdout.readline()
        found = re.match(rb"127\.0\.0\.1:(\d+) -> port", line)
        assert found, (line, process.stderr and process.stderr.read())
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


def passes(daemons: Releases, client: str, node: str, *, asks: bool) -> None:
    """Bytes pass at once, before and after the client has tried a relay that is no use to it."""
    data = os.urandom(1 << 20)
    with (
        echoing(daemons, node) as (job_id, port),
        forwarded_by(daemons, client, job_id, port) as (process, local),
        connected(local) as line,
    ):
        assert echoed(line, data) == data
        said = b""
        if asks:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert b"bytes go through the master" in said, said
        assert echoed(line, data) == data
        process.send_signal(signal.SIGINT)
        _, left = process.communicate(timeout=60.0)
        assert (process.returncode, left) == (130, b"")


def test_a_forward_passes_in_all_mixes(mixed: tuple[Releases, str]) -> None:
    daemons, former = mixed
    knows = former == FIRST_RELAY
    passes(daemons, PRESENT, FORMER, asks=knows)
    passes(daemons, PRESENT, OURS, asks=knows)
    passes(daemons, former, OURS, asks=knows)
    daemons.change("master", PRESENT, at_once=False)
    daemons.wait_for("master")
    passes(daemons, PRESENT, FORMER, asks=True)
    passes(daemons, former, OURS, asks=knows)
    passes(daemons, former, FORMER, asks=knows)
    assert daemons.seen("master") == {former, PRESENT}
    assert (daemons.seen(FORMER), daemons.seen(OURS)) == ({former}, {PRESENT})
