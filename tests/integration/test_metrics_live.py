"""The pages of a real master: each documented metric is there, in both formats, on loopback and by
TLS.

With PROMTOOL, as `make monitoring` has it, promtool reads the page, and a Prometheus scrapes it and
answers every expression of the alerts and dashboards.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.harness import Daemons
from support.metric_names import documented, expressions, metrics_in, on_page
from support.metric_pages import samples
from support.ports import free_ports
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/rpc/metrics/test_rpc_metric_docs.py",
        "unit/master/rpc/metrics/test_rpc_metric_access.py",
    ),
]
# These are on the page only once there is something to tell: no start has been forecast here.
WITHOUT_A_FORECAST = {"dlq_forecast_covered_ratio"}
SETTINGS = "[metrics]\nnode_info = true\njob_info = true\nslurm_names = true\n"
SHIPPING = '[backup]\nca_key = "apart"\n[shipping]\ndirectory = "{}"\nsame_disk = true\n'
TOKEN = "0123456789abcdef" * 2


@contextmanager
def a_master(root: Path, host: str, settings: str) -> Iterator[str]:
    """A master with one node that tells its metrics at this host; a job has run there."""
    (port,) = free_ports(1)
    daemons = Daemons(root, ("n1",))
    config = root / "master.toml"
    with daemons.up():
        daemons.stop("master")
        listen = f'[listen]\nmetrics = "{host}:{port}"\n'
        config.write_text(config.read_text().replace("[listen]\n", listen) + settings)
        daemons.start("master")
        daemons.wait_for("master")
        daemons.said("submit", "--gpus", "1", "--wait", "--", "true")
        yield f"127.0.0.1:{port}"


def read(url: str, accept: str = "*/*", *, ca: Path | None = None, token: str = "") -> str:
    headers = {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})
    context = None
    if ca is not None:
        context = ssl.create_default_context(cafile=str(ca))
        context.check_hostname = False
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, context=context) as answer:
        text: str = answer.read().decode()
    return text


def test_a_live_page_has_each_documented_metric_and_promtool_reads_it(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with a_master(tmp_path, "127.0.0.1", SETTINGS + SHIPPING.format(place)) as address:
        url = f"http://{address}/metrics"
        ended = 'dlq_job_run_seconds_count{queue="default",state="completed"}'
        wait_until(lambda: samples(read(url)).get(ended) == 1, what="the job counts")
        wait_until(lambda: "dlq_shipping_failed" in read(url), what="it ships")
        page = read(url)
        openmetrics = read(url, "application/openmetrics-text; version=1.0.0")
        slurm = samples(read(f"{url}/slurm"))
    kinds = on_page(page)
    there = set(kinds) | WITHOUT_A_FORECAST
    assert documented() == there
    histograms = {name for name, kind in kinds.items() if kind == "histogram"}
    for where, text in expressions():
        assert metrics_in(text, histograms) <= there, where
    told = samples(page)
    wait = 'dlq_job_wait_seconds_count{class="best_effort",gpus_bucket="1",queue="default"}'
    assert told[wait] == 1
    assert told['dlq_rpc_seconds_count{code="OK",method="JobService/SubmitJob"}'] == 1
    assert openmetrics.endswith("# EOF\n")
    assert slurm["slurm_nodes_idle"] == 1
    if promtool := os.environ.get("PROMTOOL"):
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=page, text=True, capture_output=True, timeout=60
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_elsewhere_a_scraper_with_the_token_reads_the_page_by_tls(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    ca = tmp_path / "master" / "ca.crt"
    settings = f'{SETTINGS}token_file = "{token}"\n'
    with a_master(tmp_path, "0.0.0.0", settings) as address:
        url = f"https://{address}/metrics"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            read(url, ca=ca)
        assert samples(read(url, ca=ca, token=TOKEN))['dlq_nodes{state="up"}'] == 1
        if promtool := os.environ.get("PROMTOOL"):
            with a_prometheus(tmp_path, promtool, address, ca, token) as ask:
                wait_until(lambda: _value(ask('up{job="dlq"}')) == "1", what="it is scraped")
                for where, text in expressions():
                    answer = ask(text.replace("$job", "dlq"))
                    assert answer["status"] == "success", where
                build = ask('dlq_build_info{job="dlq"}')
                assert _value(build) == "1"


@contextmanager
def a_prometheus(root: Path, promtool: str, address: str, ca: Path, token: Path) -> Iterator[Any]:
    """A Prometheus that scrapes the master each second; answers queries."""
    (port,) = free_ports(1)
    scrape = {
        "job_name": "dlq",
        "scheme": "https",
        "tls_config": {"ca_file": str(ca), "server_name": "dlq-master"},
        "authorization": {"credentials_file": str(token)},
        "static_configs": [{"targets": [address]}],
    }
    config = root / "prometheus.yml"  # JSON is YAML
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}))
    program = Path(promtool).with_name("prometheus")
    log = (root / "prometheus.log").open("wb")
    running = subprocess.Popen(
        [
            str(program),
            f"--config.file={config}",
            f"--storage.tsdb.path={root / 'series'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=log,
        stderr=log,
    )

    def ask(expression: str) -> Any:
        query = urllib.parse.urlencode({"query": expression})
        return json.loads(read(f"http://127.0.0.1:{port}/api/v1/query?{query}"))

    def serves() -> bool:
        try:
            return bool(read(f"http://127.0.0.1:{port}/-/ready"))
        except OSError:
            return False

    try:
        wait_until(serves, what="Prometheus serves")
        yield ask
    finally:
        running.terminate()
        running.wait(timeout=60)
        log.close()


def _value(answer: Any) -> str:
    """Of the first series; empty while there is none."""
    found = answer["data"]["result"]
    return str(found[0]["value"][1]) if found else ""
