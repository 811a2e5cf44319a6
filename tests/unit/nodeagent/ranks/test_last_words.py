"""The last lines of a rank that failed go to the master, which keeps them: no secret is among
them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dlq_nodeagent.model.messages import ContainerRequest, Launch
from dlq_nodeagent.model.port import Handle, LogChunk
from dlq_nodeagent.ranks.last_words import last_lines
from dlq_nodeagent.runtimes.fake.runtime import FakeHost, FakeRuntime
from dlq_nodeagent.runtimes.podman.prepare import secrets_of
from dlq_nodeagent.runtimes.podman.secrets import Secrets
from support.agent_bench import AgentBench, a_launch
from support.fake_clock import FakeClock

CANARY = "hunter2-canary-0815"
HANDLE = Handle(a_launch().key, 1)


class Printed(FakeRuntime):
    """A runtime with one rank, which has printed this."""

    def __init__(self, text: str) -> None:
        super().__init__(FakeHost(FakeClock()))
        self._data = text.encode()

    def read_log(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        offset = min(offset, len(self._data))
        data = self._data[offset : offset + limit]
        return LogChunk(offset=offset, data=data, end=len(self._data))


@pytest.mark.parametrize(
    ("secret", "printed", "told"),
    [
        (f"{CANARY}\n", f"login with {CANARY} refused", "login with [secret] refused"),
        (f"alice:{CANARY}", f"bad password {CANARY}!", "bad password [secret]!"),
        (f"TOKEN={CANARY}\n", f"alice {CANARY}", "alice [secret]"),
        (f'{{"wandb": {{"key": "{CANARY}"}}}}', f"key {CANARY}", "key [secret]"),
        (f"-----BEGIN-----\n{CANARY}\n-----END-----\n", CANARY, "[secret]"),
        (CANARY, "x" * 190 + CANARY, "x" * 190 + "[secret]"),
        ("ab", "ab is too short to be hidden", "ab is too short to be hidden"),
    ],
)
def test_the_values_of_its_secrets_are_not_told(secret: str, printed: str, told: str) -> None:
    lines = last_lines(Printed(f"step 7\n{printed}\n"), HANDLE, secrets=(secret.encode(),))
    assert lines == ("step 7", told)


def test_a_secret_of_which_only_the_end_is_read_is_not_told_either() -> None:
    lines = last_lines(Printed(CANARY * 2000 + "\nlast"), HANDLE, secrets=(CANARY.encode(),))
    assert lines == ("last",)


def test_without_secrets_nothing_is_changed() -> None:
    assert last_lines(Printed(f"a {CANARY}\n"), HANDLE) == (f"a {CANARY}",)


def failed(secrets: Sequence[bytes] | None) -> tuple[str, ...]:
    """The last lines that the master hears of a rank that has printed the canary."""
    bench = AgentBench()
    asked: list[Launch] = []

    def remember(launch: Launch) -> Sequence[bytes] | None:
        asked.append(launch)
        return secrets

    bench.core.supervisor.secrets_of = remember
    bench.connect()
    launch = a_launch(does=f"run_for=1 exit_code=1 log={CANARY}")
    bench.order(launch)
    bench.run(4)
    assert asked == [launch]
    return bench.last(launch).last_lines


def test_the_agent_tells_the_master_no_secret_and_nothing_if_it_cannot_know() -> None:
    assert failed(()) == (CANARY,)
    assert failed((CANARY.encode(),)) == ("[secret]",)
    assert failed(None) == ()


def test_a_check_tells_its_result_also_when_it_has_passed() -> None:
    assert ended({"DLQ_CHECK": "disk"}) == ("fast",)
    assert ended({}) == ()


def ended(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The last lines that the master hears of a rank that ends well."""
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1 exit_code=0 log=fast", environment=environment)
    bench.order(launch)
    bench.run(4)
    return bench.last(launch).last_lines


def test_secrets_are_read_where_the_node_keeps_them(tmp_path: Path) -> None:
    kept = Secrets(tmp_path / "kept", tmp_path / "run")
    (tmp_path / "kept/users/alice").mkdir(parents=True)
    path = tmp_path / "kept/users/alice/wandb"
    path.write_text(CANARY)
    path.chmod(0o600)
    launch = a_launch(container=ContainerRequest(image="i", secrets=("wandb",)), user="alice")
    assert secrets_of(kept, launch) == (CANARY.encode(),)
    assert secrets_of(kept, a_launch()) == ()
    path.unlink()
    assert secrets_of(kept, launch) is None
