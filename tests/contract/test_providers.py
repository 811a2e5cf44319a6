"""One suite over all providers: one machine for one request, listed until it is stopped; and what
an operator's program may do wrong."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.pool_config import PoolConfig
from dlq_master.providers.calls import call
from dlq_master.providers.exec import ExecProvider
from dlq_master.providers.port import Provider, ProviderFailed
from dlq_master.providers.slurm import SlurmProvider
from dlq_master.providers.static import StaticProvider
from support.fake_cloud import FakeCloud
from support.fake_kubernetes import FakeKubernetes
from support.fake_provider import FakeProvider
from support.fake_slurm import FakeSlurm
from support.provider_programs import WISH, cloud_program, kubernetes_program
from support.waiting import wait_until


def living(word: str) -> list[str]:
    """Processes that were started with this word."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if word in (entry / "cmdline").read_text():
                found.append(entry.name)
    return found


TOKENS = f"/tmp/dlq-pilots-{os.getpid()}"
# A machine is a file of its name.
HONEST = """\
here=$(dirname "$0")/there; mkdir -p "$here"
told=$(cat)
id=$(printf %s "$told" | sed 's/.*"request_id": "\\([^"]*\\)".*/\\1/')
case $1 in
start) : > "$here/$id"; printf '{"instance_id": "i-%s"}' "$id" ;;
stop) rm -f "$here/$id"; printf '{}' ;;
list) printf '{"machines": ['; comma=; for f in "$here"/*; do
        [ -e "$f" ] || continue; n=$(basename "$f")
        printf '%s{"request_id": "%s", "instance_id": "i-%s"}' "$comma" "$n" "$n"; comma=,; done
      printf ']}' ;;
esac
"""
Write = Callable[..., ExecProvider]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(script: str, *, timeout_s: float = 20.0, user: str = "") -> ExecProvider:
        path = tmp_path / "provider"
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(stat.S_IRWXU | stat.S_IROTH | stat.S_IXOTH)
        return ExecProvider(_pool("exec", program=str(path), timeout=Seconds(timeout_s), user=user))

    return written


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    """Its programs are those that are found."""
    fake = FakeSlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    yield fake
    shutil.rmtree(TOKENS, ignore_errors=True)


def pilots(**more: Any) -> SlurmProvider:
    said = {
        "token_dir": TOKENS,
        "pilot": "/opt/dlq/dlq-nodeagent",
        "sbatch": ("--gres=gpu:8",),
        "leave": Seconds(30.0),
    }
    return SlurmProvider(_pool("slurm", **said | more))


def _pool(provider: str, **more: Any) -> PoolConfig:
    return PoolConfig("spot", provider, "H100", 8, 10.0, **more)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCloud:
    """Its `aws` and `gcloud` are those that are found."""
    fake = FakeCloud(tmp_path / "cloud")
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    return fake


@pytest.fixture
def cluster() -> Iterator[FakeKubernetes]:
    fake = FakeKubernetes()
    yield fake
    fake.close()


@pytest.fixture(params=["fake", "static", "exec", "slurm", "kubernetes", "aws", "google"])
def provider(request: pytest.FixtureRequest, write: Write, tmp_path: Path) -> Provider:
    """The ones of engines and clouds are the real ones; Slurm, Kubernetes and the clouds' commands
    are fakes.
    """
    if request.param in ("aws", "google"):
        request.getfixturevalue("cloud")
        return cloud_program(tmp_path, request.param)
    if request.param == "kubernetes":
        return kubernetes_program(tmp_path, request.getfixturevalue("cluster"))
    if request.param == "slurm":
        request.getfixturevalue("slurm")
    made: dict[str, Callable[[], Provider]] = {
        "fake": FakeProvider,
        "static": StaticProvider,
        "exec": lambda: write(HONEST),
        "slurm": pilots,
    }
    return made[request.param]()


def test_asked_twice_it_is_one_machine_with_one_name(provider: Provider) -> None:
    first = provider.start(WISH)
    assert provider.start(WISH) == first
    assert [tuple(one) for one in provider.list()] == [("spot-3-1", first)]


def test_what_is_stopped_is_gone_however_often(provider: Provider) -> None:
    name = provider.start(WISH)
    assert provider.stop("spot-3-1", name)
    assert provider.stop("spot-3-1", name)
    assert provider.stop("never-was", "")
    assert provider.list() == ()


def test_two_requests_are_two_machines(provider: Provider) -> None:
    other = replace(WISH, request_id="spot-3-2", node_id="spot-3-2")
    assert provider.start(WISH) != provider.start(other)
    assert [one.request_id for one in provider.list()] == ["spot-3-1", "spot-3-2"]


def test_what_a_slurm_starts_although_it_says_that_it_failed_is_found_again(
    slurm: FakeSlurm,
) -> None:
    slurm.fail_half_way()
    with pytest.raises(
        ProviderFailed, match="sbatch ended with 1: sbatch: error: Socket timed out"
    ):
        pilots().start(WISH)
    (there,) = pilots().list()
    assert pilots().start(WISH) == there.instance_id
    assert slurm.queue == ["spot-3-1"], "one pilot"


def test_a_pilot_that_saves_is_not_gone_yet(slurm: FakeSlurm) -> None:
    name = pilots().start(WISH)
    slurm.saving(still=True)
    assert not pilots().stop("spot-3-1", name)
    slurm.saving(still=False)
    assert pilots().stop("spot-3-1", "")


def test_jobs_of_others_in_a_slurm_are_not_ours(slurm: FakeSlurm) -> None:
    (slurm.root / "jobs" / "7").write_text("training")
    (slurm.root / "jobs" / "8").write_text("spotless-1")
    assert pilots().list() == ()
    assert pilots().stop("spot-3-1", "7")
    assert slurm.queue == ["spotless-1", "training"]


def test_a_pilot_holds_what_it_needs_whatever_is_in_its_names(slurm: FakeSlurm) -> None:
    """Words of the configuration and of the token are quoted for the shell that runs there."""
    odd = pilots(pilot="/opt/my dlq/agent", pilot_config="/etc/it's.toml", leave=Seconds(25.0))
    odd.start(replace(WISH, token="dlq1.$(reboot).x"))
    assert (
        "'/opt/my dlq/agent' join - --master head:7321 --wait 10m --name spot-3-1" in slurm.script
    )
    assert f"<{TOKENS}/spot-3-1 ||" in slurm.script
    assert "dlq1" not in slurm.script
    assert "leave --for 25s" in slurm.script
    subprocess.run(["/bin/sh", "-n"], input=slurm.script, text=True, check=True)


def test_the_token_of_a_pilot_is_a_file_that_only_its_account_reads(slurm: FakeSlurm) -> None:
    kept = Path(TOKENS) / "spot-3-1"
    name = pilots().start(WISH)
    assert kept.read_text() == "dlq1.a.secret\n"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (kept, kept.parent)] == [0o600, 0o700]
    assert "secret" not in slurm.script
    assert pilots().stop("spot-3-1", name)
    assert not kept.exists(), "of a machine that is gone nothing is left"


def test_a_slurm_that_is_not_there_or_hangs_is_a_fault(
    tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slurm.bin / "squeue").write_text("#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(ProviderFailed, match=r"squeue did not end within 0\.5 s and was killed"):
        pilots(timeout=Seconds(0.5)).list()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderFailed, match="squeue cannot be run"):
        pilots().start(WISH)


def test_a_program_that_hangs_is_killed_with_all_that_it_has_started(
    write: Write, tmp_path: Path
) -> None:
    script = f"sh -c 'sleep 1000; :' {tmp_path} & sh -c 'sleep 1000; :' {tmp_path}"
    hanging = write(script, timeout_s=0.5)
    began_s = time.process_time()
    with pytest.raises(ProviderFailed, match=r"did not end within 0\.5 s and was killed"):
        hanging.start(WISH)
    assert time.process_time() - began_s < 1.0, "it is waited for, not looked at"
    wait_until(lambda: not living(str(tmp_path)), what="all of it to be gone")


def test_a_program_that_hangs_goes_with_the_master_that_is_killed(
    write: Write, tmp_path: Path
) -> None:
    """All of it, what it ignores notwithstanding; nobody is left who waits for the master
    either.
    """
    there = tmp_path / "there"
    write(f"trap '' HUP TERM; sh -c 'sleep 1000; :' {tmp_path} & : > {there}; wait")
    words = [sys.executable, "-m", "support.calling_master", str(tmp_path / "provider")]
    master = subprocess.Popen(words, cwd=Path(__file__).parent.parent)
    try:
        wait_until(there.exists, what="it to hang")
        assert len(living(str(tmp_path))) >= 3, "the master, the program and what it has started"
    finally:
        master.kill()
        master.wait()
    wait_until(lambda: not living(str(tmp_path)), what="all of it to be gone")


def test_a_program_may_wait_for_all_its_children(write: Write) -> None:
    """Who watches over it is none of them."""
    waits = "import os, sys\ntry: os.wait()\nexcept ChildProcessError: print('{\"machines\": []}')"
    assert write(f"exec {sys.executable} -S -c {shlex.quote(waits)}").list() == ()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no quota left >&2; exit 3", "provider ended with 3: no quota left"),
        ("echo hello", "start did not print one JSON object"),
        ("echo '[1]'", "start did not print one JSON object"),
        ("echo '{}'", "start did not print instance_id"),
        ("""echo '{"instance_id": 7}'""", "start did not print instance_id"),
        ("kill -9 $$", "provider ended with -9"),
    ],
)
def test_what_a_program_does_wrong_is_told_on_one_line(
    write: Write, script: str, words: str
) -> None:
    with pytest.raises(ProviderFailed) as failed:
        write(script).start(WISH)
    assert words in str(failed.value)
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("stream", ["1", "2"])
def test_who_writes_without_end_is_ended_before_the_master_s_memory_is_full(
    write: Write, stream: str
) -> None:
    """Not only once its time is over: a minute of it would be gigabytes."""
    with pytest.raises(ProviderFailed, match="wrote more than 4194304 bytes and was killed"):
        write(f"cat /dev/zero >&{stream}", timeout_s=1000.0).start(WISH)


def test_who_reads_nothing_of_what_it_is_told_is_heard_all_the_same(write: Write) -> None:
    long = replace(WISH, token="x" * 300_000)
    assert write("""exec <&-; echo '{"instance_id": "i-1"}'""").start(long) == "i-1"


def test_a_list_that_makes_no_sense_is_a_fault_and_not_an_empty_one(write: Write) -> None:
    """Else all machines would be taken for lost."""
    for script in ("echo '{}'", """echo '{"machines": [1]}'""", """echo '{"machines": [{}]}'"""):
        with pytest.raises(ProviderFailed):
            write(script).list()


def test_a_stop_may_take_longer(write: Write) -> None:
    assert not write("""echo '{"gone": false}'""").stop("spot-3-1", "i-1")
    with pytest.raises(ProviderFailed):
        write("""echo '{"gone": "soon"}'""").stop("spot-3-1", "i-1")


def test_the_token_is_told_on_standard_input_alone(write: Write, tmp_path: Path) -> None:
    script = f"""env > {tmp_path}/env; printf %s "$*" > {tmp_path}/words; cat > {tmp_path}/in; echo '{{"instance_id": "i"}}'"""  # noqa: E501
    write(script).start(WISH)
    assert "dlq1.a.secret" in (tmp_path / "in").read_text()
    assert "dlq1.a.secret" not in (tmp_path / "env").read_text() + (tmp_path / "words").read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_program_runs_as_its_account_with_the_groups_of_that_alone() -> None:
    told = call(["/bin/sh", "-c", "id -un; id -Gn"], timeout_s=20.0, user="nobody")
    groups = subprocess.run(["id", "-Gn", "nobody"], capture_output=True, text=True, check=True)
    assert told.splitlines() == ["nobody", groups.stdout.strip()]


def test_an_account_that_is_not_there_is_named(write: Write) -> None:
    with pytest.raises(ProviderFailed, match="there is no account nobody-of-that-name"):
        write(HONEST, user="nobody-of-that-name").list()


def test_a_program_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    missing = ExecProvider(_pool("exec", program=str(tmp_path / "nothing"), timeout=Seconds(5.0)))
    with pytest.raises(ProviderFailed, match="nothing cannot be run"):
        missing.list()
