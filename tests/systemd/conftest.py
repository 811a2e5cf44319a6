"""What all booted hosts of this folder need: their base system, and wheels to install from."""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nspawn import base_system
from support.wheels import ROOT, build_wheel, download_wheels

TOOLS = ("systemd-nspawn", "debootstrap", "ip", "nsenter")


@pytest.fixture(scope="session")
def base() -> Path:
    """A minimal Debian, which no host writes to."""
    assert os.getuid() == 0, "booting hosts needs root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    assert missing == [], "apt-get install systemd-container debootstrap iproute2 util-linux"
    return base_system(ROOT / "build/systemd")


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="dlq-systemd-wheels-"))
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="session")
def wheel(scratch: Path) -> Path:
    """This tree, as a package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return build_wheel(scratch, version=project["version"])


@pytest.fixture(scope="session")
def wheels(scratch: Path, wheel: Path) -> Path:
    """A directory with the packages that it needs."""
    download_wheels(wheel, scratch / "wheels")
    return scratch / "wheels"
