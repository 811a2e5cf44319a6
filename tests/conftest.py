"""How property tests run: the same examples every time, and never judged by the clock.

LONG=1 (`make test-long`) tries more of them; `HYPOTHESIS_PROFILE=long` looks for new ones, and for
longer.
"""

import gc
import io
import os
import signal
import sys
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from support.daemon_logs import ends_of_logs
from support.extent import times

# What is imported and collected stays: looking through it again and again would take a tenth of the
# run.
gc.disable()
# A shell in the background lets those whom it starts ignore Ctrl-C, and they whom they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Plain lines: colours and columns cost as much as what is told.
structlog.configure(
    processors=[structlog.stdlib.add_log_level, structlog.processors.KeyValueRenderer()]
)
LOGGED = io.StringIO()  # by a loop in this process, where pytest catches nothing
# On a busy machine every time limit is a coin toss.
UNTIMED = (HealthCheck.too_slow,)
settings.register_profile(
    "quick",
    deadline=None,
    suppress_health_check=UNTIMED,
    max_examples=times(20, 100),
    derandomize=True,
)
settings.register_profile(
    "long", deadline=None, suppress_health_check=UNTIMED, max_examples=2000, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fail-if-all-skip",
        action="store_true",
        help="fail when no test passed: what a target of its own is for was then not tested",
    )


def pytest_configure(config: pytest.Config) -> None:
    """With `-s` somebody reads the figures of a run; its log shows with failures."""
    if config.getoption("capture") == "no":
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(LOGGED))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A target whose tests all skip has shown nothing; the reasons of the skips say what to
    install.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("--fail-if-all-skip") or reporter is None:
        return
    if session.exitstatus == pytest.ExitCode.OK and not reporter.stats.get("passed"):
        reporter.write_line("")
        reporter.write_line("no test ran: see why each was skipped, below", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def closed_sites() -> Iterator[None]:
    """Masters of rented machines are looked through once more, and closed, whichever test has made
    them.
    """
    yield
    if (rented := sys.modules.get("support.rented")) is not None:
        while rented.MADE:
            rented.MADE.pop().close()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails beside daemons shows what they have written."""
    report = yield
    if report.failed:
        report.sections += ends_of_logs()
        if said := LOGGED.getvalue():
            report.sections.append(("log of this process", said))
    if report.when == "teardown":
        LOGGED.seek(0)
        LOGGED.truncate()
    return report
