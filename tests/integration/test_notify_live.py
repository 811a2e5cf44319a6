"""`dlq-notify` as a process beside a real master and agent: kills, output, the end of a rule."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from dlq_client.line.identity import load_identity, save_identity
from dlq_common.identity.pki import Role, new_key_and_csr
from dlq_master.serving import read_authority
from support.harness import BIN, Daemons
from support.notify_site import WebReceiver, web_receiver
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("integration/test_notify_daemon.py", "unit/notify/test_sending.py"),
]


class LiveNotifier:
    """The daemon of a cluster."""

    def __init__(self, cluster: Daemons, web: WebReceiver) -> None:
        self.cluster, self.state = cluster, cluster.root / "notify"
        self.state.mkdir(mode=0o700)
        self._config = cluster.root / "notify.toml"
        self._config.write_text(
            f'[notify]\nstate_dir = "{self.state}"\ngather = "1s"\n'
            f'[web]\nhosts = ["localhost:{web.port}"]\nprivate_hosts = ["localhost"]\n'
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._log_in("dlq-notify")

    def start(self) -> None:
        command = [str(BIN / "dlq-notify"), "run", "--config", str(self._config)]
        with (self.cluster.root / "notify.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def is_following(self) -> bool:
        """Whether it has a position in the journal."""
        with suppress(sqlite3.Error), closing(sqlite3.connect(self.state / "notify.db")) as db:
            found = db.execute("SELECT 1 FROM meta WHERE key = 'cursor'").fetchone()
            return found is not None
        return False

    def _log_in(self, name: str) -> None:
        words = ("--role", "notifier", "--uid", "4711", "--gid", "4711")
        self.cluster.said("admin", "user", "set", name, *words)
        mine = load_identity(self.cluster.root / "home")
        assert mine is not None
        made = new_key_and_csr(name)
        authority = read_authority(self.cluster.root / "master", "torture")
        signed = authority.sign_user(made.request, name, Role.NOTIFIER, time())
        identity = replace(
            mine, key=made.key, certificate=signed, user=name, role=Role.NOTIFIER.value
        )
        save_identity(self.state / "identity", identity)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Daemons]:
    with Daemons(tmp_path, ("n1",)).up() as daemons:
        yield daemons


@pytest.fixture
def web() -> Iterator[WebReceiver]:
    with web_receiver() as receiver:
        yield receiver


def test_a_user_is_told_in_spite_of_kills_and_until_the_rule_ends(
    cluster: Daemons, web: WebReceiver
) -> None:
    notifier = LiveNotifier(cluster, web)
    try:
        notifier.start()
        wait_until(notifier.is_following, what="the notifier follows the journal")
        _told_with_kills(cluster, web, notifier)
    finally:
        notifier.kill()


def _told_with_kills(cluster: Daemons, web: WebReceiver, notifier: LiveNotifier) -> None:
    url = f"http://localhost:{web.port}/hook"
    words = ("--on", "failed", "--with-output", "--gather", "0", "--json")
    made = cluster.said("notify", "add", "webhook", url, *words)
    (rule,) = json.loads(made)["rules"]
    first = _failing_job(cluster)
    wait_until(lambda: first in _jobs(web), what="the first failure is told")
    told = json.loads(web.calls[-1][2])
    assert told["outputs"][0]["lines"][-1] == "ValueError: no data"
    assert f"job {first} (boom) has failed: user_error, exit 3" in told["text"]

    notifier.kill()
    second = _failing_job(cluster)
    cluster.dlq("wait", second)
    cluster.kill("master")
    cluster.start("master")
    cluster.wait_for("master")
    notifier.start()
    wait_until(lambda: second in _jobs(web), what="what happened meanwhile is told")
    ids = [headers["Dlq-Message-Id"] for _, headers, _ in web.calls]
    assert _jobs(web) == [first, second] or len(set(ids)) == 2, "a repeat has the same id"

    cluster.said("notify", "test", rule["rule_id"])
    wait_until(lambda: "this is a test" in _text(web), what="the test has arrived")
    cluster.said("notify", "remove", rule["rule_id"])
    count = len(web.calls)
    third = _failing_job(cluster)
    cluster.dlq("wait", third)
    cluster.said("notify", "add", "webhook", url, "--on", "failed", "--gather", "0")
    fourth = _failing_job(cluster)
    wait_until(lambda: fourth in _jobs(web), what="the next rule tells what comes after it")
    assert third not in _jobs(web)
    assert len(web.calls) == count + 1


def _failing_job(cluster: Daemons) -> str:
    script = "echo 'ValueError: no data'; exit 3"
    words = ("submit", "--parsable", "-J", "boom", "-G", "1", "--", "sh", "-c", script)
    return cluster.said(*words).strip()


def _jobs(web: WebReceiver) -> list[str]:
    """The jobs of all calls, in order."""
    documents = [json.loads(body) for _, _, body in web.calls]
    return [one["job_id"] for each in documents for one in each["events"] if one["job_id"]]


def _text(web: WebReceiver) -> str:
    return str(json.loads(web.calls[-1][2])["text"])
