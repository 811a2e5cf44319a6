"""What comes through a door before anybody is known, and after: bytes that are no TLS, no HTTP/2,
no request.

Each attacker gives up his line; afterwards the master serves as before and holds none of what they
opened.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from attack.calling import Caller, Fuzzer, fuzzed, told
from attack.extent import SEED
from attack.forging import Forger
from attack.site import AttackedSite, attacked_site
from attack.test_messages import JOIN, known
from dlq_client.jobs import Jobs
from dlq_client.line.identity import Identity
from dlq_common.identity.pki import Role
from support.waiting import wait_until
from support.wire_methods import every_method

pytestmark = pytest.mark.attack

TRIES = 300
IDLE = 100  # lines that begin a handshake and say no more
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
KEPT_OPEN = 10  # files that a master may open meanwhile for itself


@pytest.fixture
def site() -> Iterator[AttackedSite]:
    with attacked_site(SEED) as made:
        yield made


@contextmanager
def unharmed(site: AttackedSite) -> Iterator[None]:
    """After the block the same master does what users want, and has closed what was opened."""
    with site.connect_person("alice") as line:
        Jobs(line).submit(site.ledger_job(0.0, 0))
        master, files = site.pid("master"), open_files(site)
        yield
        assert site.pid("master") == master
        assert site.is_alive("master")
        job_id = Jobs(line).submit(site.ledger_job(0.0, 0)).job.job_id
        wait_until(lambda: Jobs(line).get(job_id).job.HasField("end_time"), what="a job ends")
        wait_until(
            lambda: open_files(site) <= files + KEPT_OPEN, what="it closes lines", timeout_s=180.0
        )
        assert site.wrongs() == []


def open_files(site: AttackedSite) -> int:
    return len(os.listdir(f"/proc/{site.pid('master')}/fd"))


def test_bytes_that_are_no_tls(site: AttackedSite) -> None:
    chance = random.Random(SEED)
    with unharmed(site):
        for address in (site.api, site.join):
            tried(lambda: plain(address), lambda _: noise(chance), chance)  # noqa: B023


def test_handshakes_that_are_not_finished_keep_nobody_out(site: AttackedSite) -> None:
    hello = client_hello(site)
    with unharmed(site):
        lines = [plain(site.api) for _ in range(IDLE)]
        for number, line in enumerate(lines):
            line.sendall(hello[: 1 + number * len(hello) // IDLE])
        with site.connect_person("alice") as another:
            Jobs(another).list()
        for line in lines:
            line.close()


def test_frames_that_are_no_requests(site: AttackedSite, tmp_path: Path) -> None:
    """Behind a good handshake: what a program with somebody's key can say."""
    chance = random.Random(SEED)
    context = known_context(site.identity("mallory", Role.USER), tmp_path)
    with unharmed(site):
        tried(lambda: wrapped(site.api, context), frames, chance)


def test_requests_to_join_that_are_forged(site: AttackedSite) -> None:
    (method,) = [each for each in every_method() if each.path == f"{JOIN}Join"]
    identity = site.identity("mallory", Role.USER)
    forger = Forger(f"{SEED}/join", known([]))
    fuzzer = Fuzzer("nobody", Caller(site.join, identity.ca, None), forger, [method], site.secret)
    with unharmed(site):
        with fuzzed([fuzzer]):
            wait_until(lambda: sum(fuzzer.codes.values()) > TRIES, what="they have been said")
        print(f"\n{told([fuzzer])}")  # noqa: T201 - the figures of the run
        assert fuzzer.wrongs == []
        assert set(fuzzer.codes) <= {
            "INVALID_ARGUMENT",
            "UNAUTHENTICATED",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
        }


def test_words_to_the_login_broker_that_are_none(site: AttackedSite) -> None:
    chance = random.Random(SEED)
    path = str(site.root / "master" / "login.sock")

    def dial() -> socket.socket:
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(2.0)
        line.connect(path)
        return line

    def words(chance: random.Random) -> bytes:
        csr = chance.choice(['"x"', "null", "[" * 3_000, '"' + "A" * 90_000 + '"', "-1"])
        text = f'{{"v": 1, "csr": {csr}, "uid": 0, "user": "root"}}'.encode()
        return chance.choice([noise(chance), text + b"\n", text, b"{" * 70_000 + b"\n"])

    with unharmed(site):
        tried(dial, words, chance)


def tried(
    dial: Callable[[], socket.socket], words: Callable[[random.Random], bytes], chance: random.Random  # noqa: E501
) -> None:  # fmt: skip
    """TRIES lines, each of which says something, and sometimes waits for an answer."""
    for _ in range(TRIES):
        with suppress(OSError), dial() as line:
            line.sendall(words(chance))
            if chance.random() < 0.1:
                line.settimeout(0.2)
                line.recv(100)


def plain(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=5.0)


def wrapped(address: str, context: ssl.SSLContext) -> socket.socket:
    return context.wrap_socket(plain(address))


def known_context(identity: Identity, place: Path) -> ssl.SSLContext:
    """To speak as that identity, whoever the server is."""
    pair = place / "pair.pem"
    pair.write_bytes(identity.key + identity.certificate)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(pair)
    return context


def client_hello(site: AttackedSite) -> bytes:
    """The first words of a handshake."""
    out = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((1, 5, 40, 700, 20_000)))


def frames(chance: random.Random) -> bytes:
    """The beginning of HTTP/2, then frames of any type, size and stream."""
    said = [PREFACE] if chance.random() < 0.9 else []
    said.append(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    for _ in range(chance.randint(1, 60)):
        body = chance.randbytes(chance.choice((0, 4, 5, 8, 300)))
        kind, flags, stream = (
            chance.randrange(12),
            chance.randrange(256),
            chance.choice((0, 1, 3, 2**31 - 1)),
        )
        said.append(
            len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
        )
    return b"".join(said)
