"""One cluster, one server and one browser for all tests of this folder.

A violation of the content policy, an error of a script and a request to another host fail the test
in which they happen. Tests share the cluster, so they name jobs of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.browser_site import Site, busy_cluster, signed_in_site
from support.harness import Daemons
from support.shared_browser_site import SharedSite, shared_site


@pytest.fixture(scope="session")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """The cluster."""
    with busy_cluster(tmp_path_factory.mktemp("site")) as daemons:
        yield daemons


@pytest.fixture(scope="session")
def whole_site(daemons: Daemons) -> Iterator[Site]:
    """The site of all tests; a test takes `site`."""
    with signed_in_site(daemons) as site:
        yield site


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """Each test leaves no fault behind, no page and no job."""
    whole_site.tidy()
    yield whole_site
    assert whole_site.tidy() == []


@pytest.fixture(scope="session")
def whole_shared(
    whole_site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedSite]:
    """The server for all users, for all tests; a test takes `shared`."""
    with shared_site(tmp_path_factory.mktemp("shared"), whole_site) as shared:
        yield shared


@pytest.fixture
def shared(whole_shared: SharedSite) -> Iterator[SharedSite]:
    """As with `site`."""
    whole_shared.tidy()
    yield whole_shared
    assert whole_shared.tidy() == []
