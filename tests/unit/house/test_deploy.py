"""What is deployed: examples the daemons accept, units that keep their promises, a true runbook."""

import re
import shutil
import signal
import subprocess
import tomllib
from pathlib import Path

import pytest

from dlq_common.daemon.config import dump_config, load_config
from dlq_master.control.config import MasterConfig
from dlq_nodeagent.config import AgentConfig
from dlq_notify.config import NotifyConfig, check_config
from support.runbook import Runbook, read_blocks

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ROOT / "deploy/config"
UNITS = ROOT / "deploy/systemd"
# Options of a unit that its jobs would inherit: mount namespaces, system call filters, device
# rules.
REACHES_JOBS = re.compile(
    r"(?m)^(Protect\w+|Private\w+|Restrict\w+|SystemCall\w+|(ReadOnly|ReadWrite|Inaccessible|Exec|NoExec)"
    r"Paths|Bind\w*Paths|TemporaryFileSystem|Root\w+|DynamicUser|Device\w+|LockPersonality"
    r"|MemoryDenyWriteExecute|NoNewPrivileges|Nice|CPUAffinity|IOSchedulingClass|IPAddress\w+)="
)


def test_the_masters_example_is_accepted_and_differs_from_the_defaults() -> None:
    config = load_config(MasterConfig, CONFIG / "master.toml", {})
    assert config.lease.terms() is not None
    assert config != MasterConfig()


def test_what_the_masters_example_has_as_comments_is_accepted_too(tmp_path: Path) -> None:
    text = (CONFIG / "master.toml").read_text()
    whole = tmp_path / "master.toml"
    whole.write_text(re.sub(r"(?m)^# (?=\[|[a-z_]+ = )", "", text))
    config = load_config(MasterConfig, whole, {})
    notebooks, interactive = config.idle_rules()
    assert (notebooks.interactive_window_s, notebooks.dry_run) == (7_200.0, False)
    assert interactive.section == "[interactive]"


def test_the_agents_example_is_accepted_and_differs_from_the_defaults() -> None:
    config = load_config(AgentConfig, CONFIG / "nodeagent.toml", {})
    assert config.rules() is not None
    assert config != AgentConfig()


def test_the_notifiers_example_is_accepted_and_differs_from_the_defaults() -> None:
    config = load_config(NotifyConfig, CONFIG / "notify.toml", {})
    check_config(config)
    assert config != NotifyConfig()


def test_every_line_of_the_users_map_is_one_that_the_shim_reads() -> None:
    lines = (CONFIG / "users.map").read_text().splitlines()
    users = [line for line in lines if not line.startswith("#")]
    assert len(users) >= 2
    assert [line for line in users if not re.fullmatch(r"\d+:\d+:(\d+(,\d+)*)?", line)] == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (MasterConfig, "master.toml"),
        (AgentConfig, "nodeagent.toml"),
        (NotifyConfig, "notify.toml"),
    ],
)
def test_what_check_config_prints_is_accepted_again(
    kind: type[MasterConfig | AgentConfig | NotifyConfig], name: str, tmp_path: Path
) -> None:
    config = load_config(kind, CONFIG / name, {})
    printed = tmp_path / name
    printed.write_text(dump_config(config))
    assert load_config(kind, printed, {}) == config


def test_nothing_of_the_agents_unit_reaches_into_its_jobs() -> None:
    text = (UNITS / "dlq-nodeagent.service").read_text()
    assert REACHES_JOBS.findall(text) == []
    assert re.search(r"(?m)^KillMode=process$", text)
    assert REACHES_JOBS.search((UNITS / "dlq-master.service").read_text()), "the pattern finds some"


def test_no_option_of_the_jobs_group_acts_on_the_group() -> None:
    text = (UNITS / "dlq-jobs.service").read_text()
    assert (
        re.findall(r"(?m)^(PrivateDevices|ProtectClock|Device\w+|IPAddress\w+|MemoryMax)=", text)
        == []
    )
    assert re.search(r"(?m)^Delegate=yes$", text)


def test_the_shims_that_a_shutdown_kills_are_those_of_the_agents_unit(tmp_path: Path) -> None:
    """The command of the unit, run on a written tree: a process of the same name elsewhere
    stays.
    """
    text = (UNITS / "dlq-jobs.service").read_text().replace("\\\n", "")
    command = re.search(r"(?m)^ExecStop=-/bin/sh -c '(.+)'$", text)
    assert command is not None
    group = tmp_path / "system.slice/dlq-nodeagent.service"
    group.mkdir(parents=True)
    shim = tmp_path / "dlq-shim"
    shutil.copy(shutil.which("sleep") or "", shim)
    ours, theirs, of_another = (subprocess.Popen([shim, "600"]) for _ in range(3))
    second = tmp_path / "system.slice/dlq-nodeagent-second.service"
    second.mkdir()
    (second / "cgroup.procs").write_text(f"{of_another.pid}\n")
    other = subprocess.Popen(["sleep", "600"])
    try:
        (group / "cgroup.procs").write_text(f"{ours.pid}\n{other.pid}\n")
        script = command[1].replace("$$", "$").replace("/sys/fs/cgroup ", f"{tmp_path} ")
        subprocess.run(["/bin/sh", "-c", script], check=False)
        assert ours.wait() == -signal.SIGKILL
        assert (theirs.poll(), other.poll(), of_another.poll()) == (None, None, None)
    finally:
        for process in (ours, theirs, other, of_another):
            process.kill()
            process.wait()


def test_the_agent_looks_for_its_jobs_where_their_unit_is() -> None:
    slice_ = re.search(r"(?m)^Slice=(.+)$", (UNITS / "dlq-jobs.service").read_text())
    agent = (UNITS / "dlq-nodeagent.service").read_text()
    assert slice_ is not None
    assert f"Environment=DLQ_NODE__CGROUP=/{slice_[1]}/dlq-jobs.service\n" in agent


def test_the_installer_is_a_shell_script_that_knows_every_unit() -> None:
    script = ROOT / "deploy/install.sh"
    subprocess.run(["sh", "-n", script], check=True)
    units = sorted(path.name for path in UNITS.iterdir())
    assert [unit for unit in units if unit not in script.read_text()] == []


def test_the_runbook_installs_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    install = Runbook(ROOT / "docs/running").take("Install")
    assert f"dlq-{version}-py3" in install.script


def test_blocks_are_found_with_their_host_their_user_and_their_heading(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Top\n```sh\n# on head\n# a comment\nls\n```\n## Next\n```sh\nnot run\n```\n"
        "```sh\n# on both, as ada\nid\n```\n"
    )
    found = [(one.section, one.host, one.user, one.script) for one in read_blocks(page)]
    assert found == [("Top", "head", "root", "# a comment\nls\n"), ("Next", "both", "ada", "id\n")]
