"""dlq-web as a process with a socket of systemd: HTTPS, a client certificate, and its own end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import sys
from pathlib import Path

import httpx
import pytest

from dlq_client.line.identity import certified, save_identity
from dlq_common.identity.pki import Role
from dlq_web.running import claimed
from support.rpc_house import RpcHouse, rpc_house
from support.shared_web_house import web_toml

pytestmark = pytest.mark.integration
BIN = Path(sys.executable).parent
PATIENCE_S = 60.0
# As systemd does it: the socket is number 3, and the variable names the process itself.
STARTS = 'exec 3<&"$0"; export LISTEN_PID=$$; exec "$@"'


def tls_of(root: Path, house: RpcHouse, name: str = "") -> ssl.SSLContext:
    """What a browser knows: the page's certificate, and perhaps one of its user's."""
    context = ssl.create_default_context(cafile=str(root / "page.crt"))
    if name:
        key, certificate = house.certificate(name, Role.USER)
        (root / "user.pem").write_bytes(key + certificate)
        context.load_cert_chain(root / "user.pem")
    return context


async def answered(browser: httpx.AsyncClient, path: str) -> httpx.Response:
    """The answer, once the process is there: callers wait in the socket of systemd meanwhile."""
    return await browser.get(path, headers={"accept": "application/json"}, timeout=PATIENCE_S)


async def test_it_serves_a_socket_of_systemd_with_tls_and_client_certificates(
    tmp_path: Path,
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    origin = f"https://localhost:{port}"
    async with rpc_house(tmp_path) as house:
        path = web_toml(house, tmp_path, port)
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", STARTS, str(listening.fileno()),
            str(BIN / "python"), "-m", "dlq_web.daemon", "serve", "--config", str(path),
            pass_fds=[listening.fileno()],
            env=os.environ | {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "web"},
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with httpx.AsyncClient(base_url=origin, verify=tls_of(tmp_path, house)) as nobody:
                assert (await answered(nobody, "/readyz")).text == "ok\n"
                assert (await answered(nobody, "/v1/jobs")).status_code == 401
                told = await nobody.post("/enter/certificate", headers={"origin": origin})
                assert told.status_code == 401, "it has shown none"
            alices = tls_of(tmp_path, house, "alice")
            async with httpx.AsyncClient(base_url=origin, verify=alices) as alice:
                told = await alice.post("/enter/certificate", headers={"origin": origin})
                assert told.status_code == 303
                assert (await answered(alice, "/v1/jobs")).status_code == 200
                async with alice.stream("GET", "/v1/events", timeout=PATIENCE_S) as events:
                    process.send_signal(signal.SIGTERM)
                    async for _ in events.aiter_lines():
                        pass  # the stream ends with the server
            assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            listening.close()


async def test_without_a_right_identity_it_says_what_is_missing(tmp_path: Path) -> None:
    async with rpc_house(tmp_path) as house:
        path = web_toml(house, tmp_path, 7330)
        key, certificate = house.certificate("alice", Role.USER)
        ca = house.authority.certificate_pem()
        save_identity(tmp_path / "identity", certified(key, certificate, ca, "127.0.0.1:1"))
        process = await asyncio.create_subprocess_exec(
            str(BIN / "python"), "-m", "dlq_web.daemon", "serve", "--config", str(path),
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 1
    assert b"alice has the role user" in said
    assert b"--role web" in said


async def test_a_second_server_of_one_directory_is_refused(tmp_path: Path) -> None:
    async with rpc_house(tmp_path) as house:
        path = web_toml(house, tmp_path, 7330)
        with claimed(tmp_path):
            process = await asyncio.create_subprocess_exec(
                str(BIN / "python"), "-m", "dlq_web.daemon", "serve", "--config", str(path),
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, said = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 1
    assert f"another dlq-web uses {tmp_path}".encode() in said
    with claimed(tmp_path):
        pass  # it is free again
