"""The programs of deploy/providers as pools that call them, with settings for the fakes."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

from dlq_common.daemon.config import Seconds
from dlq_master.control.pool_config import PoolConfig
from dlq_master.providers.exec import ExecProvider
from dlq_master.providers.port import MachineWish
from support.fake_kubernetes import FakeKubernetes

_PROGRAMS = Path(__file__).parent.parent.parent / "deploy" / "providers"
WISH = MachineWish(
    request_id="spot-3-1",
    pool="spot",
    node_id="spot-3-1",
    gpu_type="h100-80gb",
    gpu_count=8,
    join_address="head:7321",
    token="dlq1.a.secret",
)
_CLOUDS = {
    "aws": 'vendor = "aws"\nlaunch_template = "dlq"\n',
    "google": 'vendor = "google"\ninstance_template = "dlq"\nzone = "europe-west4-a"\n',
}


def kubernetes_settings(directory: Path, cluster: FakeKubernetes) -> str:
    (directory / "bearer").write_text("sesame\n")
    return f"""\
server = "{cluster.url}"
namespace = "batch"
image = "registry.example/dlq:1"
token_file = "{directory / "bearer"}"
leave_seconds = 25
pod.nodeSelector.gpu = "h100"
"""


def kubernetes_program(directory: Path, cluster: FakeKubernetes) -> ExecProvider:
    return _pool(directory, "kubernetes_pods.py", kubernetes_settings(directory, cluster))


def cloud_program(directory: Path, vendor: str, more: str = "") -> ExecProvider:
    return _pool(directory, "cloud_commands.py", _CLOUDS[vendor] + more)


def a_program(
    directory: Path, name: str, settings: str, verb: str
) -> subprocess.CompletedProcess[str]:
    """Call it as an operator does."""
    path = directory / "settings.toml"
    path.write_text(settings)
    words = [sys.executable, str(_PROGRAMS / name), str(path), verb]
    return subprocess.run(words, capture_output=True, text=True, input="{}", check=False)


def _pool(directory: Path, name: str, settings: str) -> ExecProvider:
    """The program of two lines that an operator writes."""
    (directory / "settings.toml").write_text(settings)
    program = directory / "provider"
    words = f'{sys.executable} -B {_PROGRAMS / name} {directory / "settings.toml"} "$@"'
    program.write_text(f"#!/bin/sh\nexec {words}\n")
    program.chmod(stat.S_IRWXU)
    asked = PoolConfig("spot", "exec", "H100", 8, 10.0, program=str(program), timeout=Seconds(60.0))
    return ExecProvider(asked)
