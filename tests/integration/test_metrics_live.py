"""The page of a real master with a real job: each documented metric is on it, in both formats.

With PROMTOOL, as `make monitoring` has it, promtool reads the page as well.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.harness import Daemons
from support.metric_names import documented, expressions, metrics_in, on_page
from support.metric_pages import samples
from support.ports import free_ports
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/master/rpc/metrics/test_rpc_metric_docs.py"),
]
# These are on the page only once there is something to tell: no start has been forecast here.
WITHOUT_A_FORECAST = {"dlq_forecast_covered_ratio"}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where a master with one node tells its metrics, after a job has run there."""
    (port,) = free_ports(1)
    settings = "[metrics]\nnode_info = true\njob_info = true\nslurm_names = true\n"
    daemons = Daemons(tmp_path, ("n1",), settings=settings)
    config = tmp_path / "master.toml"
    with daemons.up():
        daemons.stop("master")
        listen = f'[listen]\nmetrics = "127.0.0.1:{port}"\n'
        config.write_text(config.read_text().replace("[listen]\n", listen))
        daemons.start("master")
        daemons.wait_for("master")
        daemons.said("submit", "--gpus", "1", "--wait", "--", "true")
        yield f"http://127.0.0.1:{port}/metrics"


def read(address: str, accept: str = "*/*") -> str:
    request = urllib.request.Request(address, headers={"Accept": accept})
    with urllib.request.urlopen(request) as answer:
        text: str = answer.read().decode()
    return text


def test_a_live_page_has_each_documented_metric_and_promtool_reads_it(address: str) -> None:
    ended = 'dlq_job_run_seconds_count{queue="default",state="completed"}'
    wait_until(lambda: samples(read(address)).get(ended) == 1, what="the job counts")
    page = read(address)
    kinds = on_page(page)
    there = set(kinds) | WITHOUT_A_FORECAST
    assert documented() == there
    histograms = {name for name, kind in kinds.items() if kind == "histogram"}
    for where, text in expressions():
        assert metrics_in(text, histograms) <= there, where
    told = samples(page)
    assert told['dlq_job_wait_seconds_count{class="best_effort",gpus="1",queue="default"}'] == 1
    assert told['dlq_rpc_seconds_count{code="OK",method="JobService/SubmitJob"}'] == 1
    openmetrics = read(address, "application/openmetrics-text; version=1.0.0")
    assert openmetrics.endswith("# EOF\n")
    assert samples(read(f"{address}/slurm"))["slurm_nodes_idle"] == 1
    if promtool := os.environ.get("PROMTOOL"):
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=page, text=True, capture_output=True, timeout=60
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
