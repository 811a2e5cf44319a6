"""A fault in the log tells where it happened, never what was in the variables."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from dlq_common.daemon.logs import configure_logging, get_logger
from support.fake_clock import FakeClock


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


@pytest.mark.parametrize("as_json", [True, False])
def test_a_fault_is_logged_without_the_values_of_its_variables(as_json: bool) -> None:
    stream = io.StringIO()
    configure_logging(FakeClock(), stream=stream, as_json=as_json)
    try:
        use_token("-".join(["canary", "17"]))
    except ValueError as error:
        get_logger("test").error("rpc_failed", exc_info=error)
    assert "use_token" in stream.getvalue()
    assert "canary-17" not in stream.getvalue()


def use_token(token: str) -> None:
    """Fail with a secret at hand."""
    if token:
        raise ValueError("no")
