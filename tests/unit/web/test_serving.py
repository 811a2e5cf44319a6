"""How the server begins: a port that is taken, and packages that are not there."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace

import pytest

from dlq_common.errors import ConfigError
from dlq_web import serving
from dlq_web.command import web
from support.fake_clock import FakeClock


def test_a_free_port_serves_where_the_usual_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((serving.HOST, 0)) as taken:
        usual = taken.getsockname()[1]
        monkeypatch.setattr(serving, "USUAL_PORT", usual)
        with serving.bound(None) as listening:
            port = listening.getsockname()[1]
            assert port != usual
            socket.create_connection((serving.HOST, port)).close()
        with (
            pytest.raises(ConfigError, match=f"port {usual}") as refused,
            serving.bound(usual),
        ):
            pass
    assert "--port" in refused.value.hint


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "structlog", None)
    with pytest.raises(ConfigError, match="structlog is not installed") as refused:
        web.main(args=[], obj=SimpleNamespace(clock=FakeClock()), standalone_mode=False)
    assert "dlq[web]" in refused.value.hint
