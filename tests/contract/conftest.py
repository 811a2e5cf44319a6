"""What more than one suite of contracts needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_master.providers.exec import ExecProvider
from support.fake_kubernetes import FakeKubernetes
from support.provider_programs import kubernetes_program


@pytest.fixture
def cluster() -> Iterator[FakeKubernetes]:
    made = FakeKubernetes()
    yield made
    made.close()


@pytest.fixture
def pods(cluster: FakeKubernetes, tmp_path: Path) -> ExecProvider:
    return kubernetes_program(tmp_path, cluster)
