"""One site for all programs, and each test once for each scheduler."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from strangers import site as sites
from support import real_slurm


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.strangers)


@pytest.fixture(scope="session")
def accounts() -> Iterator[dict[str, sites.Account]]:
    """Accounts on dlq and on a real Slurm."""
    if why := sites.missing() or real_slurm.missing():
        pytest.skip(why)
    # Below /tmp itself: pytest's own directories are closed to other users.
    root = Path(tempfile.mkdtemp(prefix="dlqs", dir="/tmp"))
    os.chmod(root, 0o755)
    try:
        with sites.site(root) as made:
            yield made
    finally:
        shutil.rmtree(root)


@pytest.fixture(params=["dlq", "slurm"])
def user(request: pytest.FixtureRequest, accounts: dict[str, sites.Account]) -> sites.Account:
    """The same person on either."""
    return accounts[request.param]
