"""Where strangers' programs run: dlq with real accounts, and a real Slurm beside it.

Both are driven by the same words in the same account. A test that runs on both is the comparison.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.harness import Daemons
from support.host_account import free_name, host_account
from support.ports import free_ports
from support.real_slurm import RealSlurm
from support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".strangers"
"""`make strangers` makes them, with the system's Python: other accounts may run it."""
DLQ = ENVIRONMENTS / "dlq" / "bin"
PATIENCE_S = 180.0


def environment(group: str) -> Path:
    """The programs of one group of requirements."""
    return ENVIRONMENTS / group / "bin"


class StrangersDaemons(Daemons):
    """A master and two agents of root; jobs run as the accounts that submit them."""

    people: Sequence[pwd.struct_passwd] = ()

    def _command(self, name: str) -> list[str]:
        return [str(DLQ / Path(super()._command(name)[0]).name), *super()._command(name)[1:]]

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        config = self.root / f"{name}.toml"
        text = config.read_text().replace("allow_root = true", 'run_as = "submitter"')
        # Cores for jobs that name no GPU, more than this host may have.
        config.write_text(text.replace("[node]\n", "[node]\ncpus = 24\njob_cpus = 16\n"))
        lines = (f"{one.pw_uid}:{one.pw_gid}:\n" for one in self.people)
        (self.root / name / "users.map").write_text("".join(lines))


class StrangersSlurm(RealSlurm):
    """Its jobs find its configuration where sites have it, for programs that strip SLURM_CONF from
    their environment. And a job that is queued again waits 20 s there, not two minutes."""

    def _configure(self) -> None:
        super()._configure()
        path = self.root / "slurm.conf"
        path.write_text(path.read_text().replace("munge/sock\n", "munge/sock,cred_expire=20\n"))

    def _start(self, *words: str) -> None:
        if Path(words[0]).name == "slurmd":  # it and its jobs alone see that file
            script = 'mount --bind "$0" /etc/slurm && exec "$@"'
            words = ("unshare", "--mount", "sh", "-c", script, str(self.root), *words)
        super()._start(*words)


class Account:
    """A person who runs programs on one of the two schedulers."""

    def __init__(self, who: pwd.struct_passwd, home: Path, variables: Mapping[str, str]) -> None:
        self.who, self.home, self.variables = who, home, dict(variables)

    def run(
        self, *words: str | Path, path: Path | None = None, timeout_s: float = PATIENCE_S,
        check: bool = True, **more: str,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """A program to its end, in the home directory. `path` comes behind the scheduler's own."""
        variables = self.variables | more
        if path is not None:
            variables["PATH"] += f":{path}"
        done = subprocess.run(
            [str(word) for word in words], cwd=self.home, env=variables, text=True,
            stdin=subprocess.DEVNULL, capture_output=True,
            timeout=timeout_s, user=self.who.pw_uid, group=self.who.pw_gid, extra_groups=[],
        )  # fmt: skip
        assert not check or done.returncode == 0, (
            f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def python(self, group: str, text: str) -> str:
        """What a Python program of this account prints; its failure is the test's."""
        program = self.home / "program.py"
        self.write(program.name, text)
        done = self.run(environment(group) / "python", program, path=environment(group))
        return done.stdout

    def write(self, name: str, text: str, mode: int = 0o755) -> Path:
        """A file of this account."""
        path = self.home / name
        path.write_text(text)
        path.chmod(mode)
        os.chown(path, self.who.pw_uid, self.who.pw_gid)
        return path

    def until(self, name: str, what: str = "", timeout_s: float = 30.0) -> str:
        """The text of a file, once it is there and has `what` in it."""
        path = self.home / name

        def there() -> str:
            text = path.read_text() if path.exists() else ""
            return text if what in text else ""

        return wait_until(there, what=f"{name} says {what!r}", timeout_s=timeout_s)


@contextmanager
def site(root: Path) -> Iterator[dict[str, Account]]:
    """Both schedulers for two accounts each: `dlq`, `dlq-other`, `slurm`, `slurm-other`."""
    with ExitStack() as stack:
        people = [stack.enter_context(host_account(free_name("s"))) for _ in range(2)]
        for one in people:  # some programs look for it in the host's list of accounts
            os.mkdir(one.pw_dir, mode=0o700)
            os.chown(one.pw_dir, one.pw_uid, one.pw_gid)
            stack.callback(shutil.rmtree, one.pw_dir)
        yield stack.enter_context(_dlq(root, people)) | stack.enter_context(_slurm(root, people))


@contextmanager
def _dlq(root: Path, people: Sequence[pwd.struct_passwd]) -> Iterator[dict[str, Account]]:
    daemons = StrangersDaemons(root, agents=("n1", "n2"))
    daemons.people = people
    with daemons.up():
        programs = root / "commands"
        subprocess.run([DLQ / "dlq", "slurm", "install", programs], check=True, capture_output=True)
        variables = {
            "PATH": f"{programs / 'bin'}:{DLQ}:/usr/local/bin:/usr/bin:/bin",
            "DLQ_LOGIN_SOCKET": daemons.environment()["DLQ_LOGIN_SOCKET"],
        }
        yield _accounts("dlq", root, people, variables)


@contextmanager
def _slurm(root: Path, people: Sequence[pwd.struct_passwd]) -> Iterator[dict[str, Account]]:
    place = root / "slurm"
    place.mkdir(mode=0o755)
    with StrangersSlurm(place, free_ports(2)[0]):
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "SLURM_CONF": f"{place}/slurm.conf"}
        yield _accounts("slurm", root, people, variables)


def _accounts(
    kind: str, root: Path, people: Sequence[pwd.struct_passwd], variables: Mapping[str, str]
) -> dict[str, Account]:
    made = {}
    for who, name in zip(people, (kind, f"{kind}-other"), strict=True):
        home = root / f"{name}-home"
        home.mkdir(mode=0o700)
        (home / ".config" / "dlq").mkdir(parents=True)
        for path in (home, home / ".config", home / ".config" / "dlq"):
            os.chown(path, who.pw_uid, who.pw_gid)
        own = {"HOME": str(home), "USER": who.pw_name, "LOGNAME": who.pw_name, "LANG": "C.UTF-8"}
        made[name] = Account(who, home, {**variables, **own})
    return made


def missing() -> str:
    """What is not here; empty: nothing."""
    if not DLQ.exists():
        return "no .strangers: make strangers makes it"
    if os.getuid() != 0 or shutil.which("useradd") is None:
        return "needs root and useradd"
    return ""
