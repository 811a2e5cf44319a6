"""A relay that lies about its bytes, on real daemons: no byte is lost, and none is run twice."""

from __future__ import annotations

import hashlib
import random
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.harness import HERE, Daemons
from support.lying_proxy import LIES, LyingProxy
from support.ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.long("unit/master/relay/test_relay_lies.py")]
CLIENT = (sys.executable, "-m", "support.bulky_client")
AFTER_BYTES = 500_000  # far behind the handshakes
DATA = random.Random(7).randbytes(6 << 20)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LyingSite]:
    with LyingSite(tmp_path_factory.mktemp("lies")).up() as made:
        assert isinstance(made, LyingSite)
        yield made


class LyingSite(Daemons):
    """A master and a node, before whose relay a liar may stand."""

    def __init__(self, root: Path) -> None:
        self.relay_port, self.proxy_port = free_ports(2)
        settings = (
            f'[relay]\nlisten = "127.0.0.1:{self.relay_port}"\n'
            f'advertise = "127.0.0.1:{self.proxy_port}"\n'
        )
        super().__init__(root, ("n1",), settings=settings)

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONPATH": str(HERE.parent)}

    @contextmanager
    def lied_to(self, lie: str, *, upward: bool) -> Iterator[LyingProxy]:
        proxy = LyingProxy(
            self.relay_port, lie, upward=upward, after_bytes=AFTER_BYTES, at_port=self.proxy_port
        )
        with proxy.running():
            yield proxy

    @contextmanager
    def job(self) -> Iterator[str]:
        asked = ("submit", "--parsable", "-G", "1", "--", "sleep", "1000")
        job_id = self.said(*asked).strip()
        self.said("wait", "--for", "running", "--timeout", "60s", job_id)
        try:
            yield job_id
        finally:
            self.dlq("cancel", "--kill", job_id)

    @contextmanager
    def command(self, job_id: str, script: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        """One whose bytes go through the relay already. It waits for its first line of input.
        `more`: variables of the client.
        """
        client = ("env", *(f"{name}={value}" for name, value in more.items()), *CLIENT)
        words = (*client, job_id, "sh", "-c", f"read go; {script}")
        with self.begun(*words, stdin=subprocess.PIPE) as process:
            way = said(process)
            assert re.match(rb"bytes go through the relay at ", way), way
            yield process


def said(process: subprocess.Popen[bytes]) -> bytes:
    """Its next word for people."""
    assert process.stderr is not None
    ready, _, _ = select.select([process.stderr], [], [], 60.0)
    assert ready, "it says nothing"
    return process.stderr.readline()


WAYS = pytest.mark.parametrize("upward", [True, False], ids=["to the relay", "from the relay"])


@WAYS
@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_comes_out_of_a_job_is_whole(site: LyingSite, lie: str, upward: bool) -> None:
    source = site.root / "source"
    source.write_bytes(DATA)
    with (
        site.lied_to(lie, upward=upward) as proxy,
        site.job() as job_id,
        site.command(job_id, f"cat {source}") as process,
    ):
        proxy.lies_left = 1
        out, err = process.communicate(b"go\n", timeout=120.0)
    assert proxy.lies == 1
    assert process.returncode == 0, err
    assert out == DATA
    assert b"through the master: the line through the relay" in err


@WAYS
@pytest.mark.parametrize("lie", LIES)
def test_what_goes_into_a_job_is_read_once(site: LyingSite, lie: str, upward: bool) -> None:
    """The command counts what it reads. Lines that came twice, or not at all, would change it."""
    with (
        site.lied_to(lie, upward=upward) as proxy,
        site.job() as job_id,
        site.command(job_id, "sha256sum") as process,
    ):
        proxy.lies_left = 1
        out, err = process.communicate(b"go\n" + DATA, timeout=120.0)
    assert proxy.lies == 1
    assert (process.returncode, out.split()[0].decode()) == (0, hashlib.sha256(DATA).hexdigest()), (
        err
    )


def test_a_user_between_two_networks_loses_no_byte(site: LyingSite) -> None:
    """The lines to the relay and to the master are cut in the same moment, several times."""
    source = site.root / "source"
    source.write_bytes(DATA)
    port = int(site.api.rpartition(":")[2])
    master = LyingProxy(port, "cut", upward=True, after_bytes=0)
    with site.lied_to("cut", upward=True) as relay, master.running(), site.job() as job_id:
        home = site.root / "between"
        shutil.copytree(site.root / "home", home)
        for path in home.rglob("*"):
            if path.is_file() and site.api in (text := path.read_text(errors="replace")):
                path.write_text(text.replace(site.api, master.address))
        flag = site.root / "flag"
        script = f"cat {source}; until [ -e {flag} ]; do sleep 0.1; done; cat {source}"
        with site.command(job_id, script, DLQ_HOME=str(home)) as process:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            for each in (relay, master):
                each.cut_all()
            told = said(process)
            flag.touch()
            out, err = process.communicate(timeout=120.0)
    assert process.returncode == 0, told + err
    assert out == DATA * 2
