"""JupyterHub's batchspawner under a real hub: a server is started, answers, and is stopped."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strangers.site import ENVIRONMENTS, Account, environment
from support.ports import free_ports
from support.waiting import wait_until

CONFIG = """
import os
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.JupyterHub.services = [dict(name="test", api_token="{token}")]
c.JupyterHub.load_roles = [dict(name="all", services=["test"], scopes=[
    "admin:users", "admin:servers", "access:servers"])]
c.JupyterHub.cookie_secret_file = "cookie"
c.JupyterHub.db_url = "sqlite:///hub.sqlite"
c.SlurmSpawner.exec_prefix = "runuser -u {{username}} -- env HOME={home} USER={{username}}"
c.SlurmSpawner.req_runtime = "00:10:00"
c.SlurmSpawner.req_memory = "500M"
c.SlurmSpawner.req_nprocs = "1"
c.Spawner.env_keep = ["PATH", "LANG", "SLURM_CONF", "DLQ_LOGIN_SOCKET"]
c.SlurmSpawner.startup_poll_interval = 0.5
c.SlurmSpawner.batchspawner_singleuser_cmd = "{bin}/batchspawner-singleuser"
c.SlurmSpawner.cmd = ["{bin}/jupyterhub-singleuser"]
c.Spawner.http_timeout = 60
c.Spawner.start_timeout = 120
c.Spawner.notebook_dir = "{home}"
"""


class Hub:
    """The hub's API, as an operator's program uses it."""

    def __init__(self, port: int, token: str) -> None:
        self._base, self._token = f"http://127.0.0.1:{port}", token

    def ask(self, method: str, path: str) -> tuple[int, str]:
        request = urllib.request.Request(self._base + path, method=method)
        request.add_header("Authorization", f"token {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def ready(self, name: str) -> bool:
        code, text = self.ask("GET", f"/hub/api/users/{name}")
        assert code == 200, text
        servers = json.loads(text).get("servers", {})
        return bool(servers) and bool(servers[""]["ready"])


@contextmanager
def hub(user: Account, place: Path) -> Iterator[Hub]:
    """It runs as root, as hubs do, and resolves the names of nodes."""
    port, hub_port, proxy = free_ports(3)
    token, programs = os.urandom(16).hex(), environment("hub")
    config = place / "jupyterhub_config.py"
    config.write_text(
        CONFIG.format(
            port=port, hub=hub_port, proxy=proxy, token=token, home=user.who.pw_dir, bin=programs
        )
    )
    beside = f"{ENVIRONMENTS / 'proxy' / 'node_modules' / '.bin'}:{programs}:/usr/sbin:/sbin"
    variables = user.variables | {"PATH": f"{user.variables['PATH']}:{beside}", "HOME": str(place)}
    hosts = place / "hosts"
    hosts.write_text("127.0.0.1 localhost n1 n2 node1\n")
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    beside_names = ("unshare", "--mount", "sh", "-c", script, hosts)
    with (place / "hub.log").open("wb") as log:
        process = subprocess.Popen(
            [*beside_names, programs / "jupyterhub", "-f", config], cwd=place, env=variables,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            made = Hub(port, token)
            wait_until(lambda: made.ask("GET", "/hub/api/")[0] == 200, what="the hub is up")
            yield made
        finally:
            process.terminate()
            process.wait(timeout=60)


def said(user: Account, place: Path) -> str:
    """The end of the hub's log, and what its job wrote."""
    home = Path(user.who.pw_dir)
    written = [path.read_text() for path in home.glob("jupyterhub_slurmspawner_*.log")]
    lines = (place / "hub.log").read_text().splitlines()
    told = [line for line in lines if "200 GET /hub/api/users" not in line]
    return "\n".join([*told[-60:], *written])


def test_a_server_of_a_user(user: Account, tmp_path: Path) -> None:
    name = user.who.pw_name
    with hub(user, tmp_path) as made:
        assert made.ask("POST", f"/hub/api/users/{name}")[0] in (201, 409)
        code, text = made.ask("POST", f"/hub/api/users/{name}/server")
        assert code in (201, 202), f"{text}\n{said(user, tmp_path)}"
        try:
            wait_until(lambda: made.ready(name), what="the server is ready", timeout_s=100)
        except AssertionError as never:
            raise AssertionError(f"{never}\n{said(user, tmp_path)}") from None
        listed = user.run("squeue", "-h", "-u", name, "-o", "%j %T").stdout
        assert "RUNNING" in listed
        assert made.ask("GET", f"/user/{name}/api/status")[0] == 200
        assert made.ask("DELETE", f"/hub/api/users/{name}/server")[0] in (202, 204)
        wait_until(
            lambda: "RUNNING" not in user.run("squeue", "-h", "-u", name, "-o", "%T").stdout,
            what="its job is gone",
        )
