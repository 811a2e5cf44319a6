"""Schemathesis against the web server in front of a real master: hostile calls get no 5xx, and
every answer is as `/openapi.json` says. Streams are left out (ENDLESS).

    PYTHONPATH=tests python tests/support/api_fuzz.py [--examples N] [SCHEMATHESIS-OPTION...]

The master, its agent and the web server are those of this commit. Limits of requests a second are
lifted, since one program asks for many. The report goes to build/fuzz.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from dlq_client.line.identity import load_identity
from dlq_common.clock import SteadyClock
from dlq_web.door import guard
from dlq_web.serving import HOST, bound
from support.harness import Daemons
from support.web_house import web_server_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".venv-fuzz/bin/schemathesis"
REPORT = ROOT / "build/fuzz"
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_headers_conformance", "response_schema_conformance", "unsupported_method",
    "allow_header_conformance", "ignored_auth",
)  # fmt: skip
# The stream of events has no end, and output with `follow` ends with its job alone: a call of
# either would hold the program up for minutes. Output that is not there yet is rightly a 503.
# tests/integration/test_web_streams.py has hostile calls of both.
ENDLESS = ("/v1/events", "/v1/jobs/{job}/logs")
JOBS = 3
MEMORY = "/dev/shm"  # thousands of changes, none of which anybody wants to find after a crash


@asynccontextmanager
async def served(daemons: Daemons) -> AsyncIterator[tuple[str, str]]:
    """The address of a web server for this cluster, and a token of its person."""
    identity = load_identity(daemons.root / "home")
    assert identity is not None
    with bound(0) as listening:
        address = f"{HOST}:{listening.getsockname()[1]}"
        async with web_server_of(identity, address, SteadyClock()) as web:
            server = uvicorn.Server(
                uvicorn.Config(web.app, ws="none", lifespan="off", log_level="error")
            )
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            yield f"http://{address}", web.sessions.begin(by_cookie=False)
            server.should_exit = True
            await serving


def without_endless() -> list[str]:
    """The options by which schemathesis calls no stream."""
    return [word for path in ENDLESS for word in ("--exclude-path", path)]


async def fuzzed(daemons: Daemons, options: list[str]) -> int:
    """The exit code of schemathesis."""
    async with served(daemons) as (address, token):
        process = await asyncio.create_subprocess_exec(
            PROGRAM, "run", f"{address}/openapi.json",
            "--header", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS),
            "--report", "json", "--report-dir", REPORT, "--no-color", "--continue-on-failure",
            "--suppress-health-check", "all", "--warnings", "off", *without_endless(), *options,
            cwd=REPORT,
        )  # fmt: skip
        return await process.wait()


def main() -> None:
    """Exits with the code of schemathesis."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--examples", default="20", help="of each call")
    parser.add_argument("--seed", default="1")
    told, more = parser.parse_known_args()
    options = ["--max-examples", told.examples, "--seed", told.seed, *more]
    guard.EACH_SECOND, guard.AT_ONCE = 1e6, 1e6
    REPORT.mkdir(parents=True, exist_ok=True)
    memory = MEMORY if Path(MEMORY).is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=memory) as place,
        Daemons(Path(place), ("n1",)).up() as daemons,
    ):
        for number in range(JOBS):
            daemons.said("submit", "-G", "4", "--name", f"job-{number}", "--", "sleep", "900")
        code = asyncio.run(fuzzed(daemons, options))
        daemons.dlq("cancel", "-u", "*", "--kill", "-y")
        trouble = [
            line for line in daemons.log("master").splitlines() if '"level": "error"' in line
        ]
    sys.stderr.writelines(f"{line}\n" for line in trouble[:20])
    sys.exit(code or bool(trouble))


if __name__ == "__main__":
    main()
