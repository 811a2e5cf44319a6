"""A Jupyter server as a job: the words that start it, and the words that find its port."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from dlq_cli.interactive.command import captured
from dlq_client.inside.command import CommandInside
from dlq_client.line.connection import Connection
from dlq_common.errors import IllegalTransition, Unavailable

# Its notes, with the token, lie in the attempt's own directory: a home may be shared by nodes. The
# words behind are for jupyter.
_START = """\
command -v jupyter >/dev/null || {
  echo "dlq: jupyter is not installed in the environment of this job (PATH=$PATH)" >&2
  exit 127
}
export JUPYTER_RUNTIME_DIR="${DLQ_BEAT_FILE%/*}/notebook"
rm -rf "$JUPYTER_RUNTIME_DIR"
mkdir -m 700 "$JUPYTER_RUNTIME_DIR" || exit 126
[ "$(id -u)" != 0 ] || set -- --allow-root "$@"
exec jupyter lab --no-browser --ip=127.0.0.1 --port=8888 "$@"
"""
# Two minutes: a shared file system may be slow to bring all of its modules.
_FIND = """\
at="${DLQ_BEAT_FILE%/*}/notebook" n=0
until for note in "$at"/*server-*.json; do [ -s "$note" ] && cat "$note" && break; done; do
  n=$((n+1))
  [ $n -lt 600 ] || exit 3
  sleep 0.2
done
"""


@dataclass(frozen=True, slots=True)
class Notebook:
    """A server that listens in a job."""

    port: int
    token: str
    path: str

    def url(self, local_port: int) -> str:
        """Its address at our end; the token opens it. The job wrote it, and any letters may be in
        it: a terminal gets none that it would obey.
        """
        query = f"?{urlencode({'token': self.token}, errors='replace')}" if self.token else ""
        path = quote(self.path, safe="/%@~", errors="replace")
        return f"http://127.0.0.1:{local_port}{path}lab{query}"


def starting_words(more: tuple[str, ...]) -> tuple[str, ...]:
    """The command of a job that is a notebook; `more` are words for jupyter."""
    return ("/bin/sh", "-c", _START, "dlq-notebook", *more)


def finding_words() -> list[str]:
    """The command inside that job which waits for its server, and prints the note of it."""
    return ["/bin/sh", "-c", _FIND]


def found_notebook(connection: Connection, job_id: str) -> Notebook:
    """Waits until the server of a running job listens. IllegalTransition: it never does.
    Unavailable: it was not looked for.
    """
    ended, said = captured(CommandInside(connection, job_id, finding_words(), kept=True))
    if ended.error:
        raise Unavailable(f"the notebook's server cannot be looked for: {ended.error}")
    if ended.rank_ended or ended.exit_code:
        raise IllegalTransition(
            f"job {job_id} serves no notebook", hint=f"its output says why: dlq logs {job_id}"
        )
    return notebook_of(said)


def notebook_of(note: bytes) -> Notebook:
    """The note that a Jupyter server writes about itself. Unavailable where it is none (yet)."""
    try:
        facts = json.loads(note)
        path = f"/{str(facts.get('base_url', '/')).strip('/')}/".replace("//", "/")
        port = int(facts["port"])
        if not 0 < port < 65_536:
            raise ValueError("no port")
        return Notebook(port, str(facts.get("token", "")), path)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise Unavailable("the notebook's server says nothing that is understood") from None
