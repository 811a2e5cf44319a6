"""From a launch to a plan: what is made ready, and what is refused with words for the user."""

import errno
import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_common.daemon.config import Bytes
from dlq_common.job_fields.table.job import UMASK
from dlq_common.job_fields.table.output_files import STDOUT
from dlq_nodeagent.devices.cores import JobCores
from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.launch.launching import Launching, check_account, interpreter_of
from dlq_nodeagent.launch.rules import AgentJobsConfig, LaunchRules, OutputConfig
from dlq_nodeagent.model.launch import LaunchPlan, RankKey
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.port import JobFiles
from support.agent_bench import a_launch

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root starts jobs of others")


def files(key: RankKey) -> JobFiles:
    """Paths of the runtime."""
    return JobFiles(f"/r/{key}/notice", f"/r/{key}/job", f"/r/{key}/beat", f"/r/{key}/done")


@pytest.fixture
def launching(tmp_path: Path) -> Launching:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    rules = LaunchRules(
        jobs=AgentJobsConfig(allow_root=True, roots=(str(tmp_path),), pids_max=100),
        output=OutputConfig(Bytes(4096), Bytes(8192), Bytes(0)),
        run_as="self",
        scripts=scripts,
    )
    return Launching(
        rules=rules,
        devices=FakeDevices(parse_virtual("2xH100-80GB"), "n1").devices(),
        job_files=files,
        now_s=lambda: 1000.0,
    )


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    (tmp_path / "work").mkdir()
    return a_launch(
        working_directory=str(tmp_path / "work"),
        checkpoint_directory=str(tmp_path / "ckpt" / "17" / "1"),
    )


def plan_of(launching: Launching, launch: Launch) -> LaunchPlan:
    """The plan, which there must be."""
    preparation = launching.prepare(launch)
    assert preparation.plan is not None, preparation.error
    return preparation.plan


def error_of(launching: Launching, launch: Launch) -> str:
    """The refusal, which there must be."""
    preparation = launching.prepare(launch)
    assert preparation.plan is None
    assert preparation.error
    return preparation.error


def code_of(launching: Launching, launch: Launch) -> int | None:
    """What a refused launch exits with; None: the host is at fault."""
    preparation = launching.prepare(launch)
    assert preparation.error
    return preparation.exit_code


def test_a_plan_says_all_that_the_runtime_needs(launching: Launching, launch: Launch) -> None:
    asked = replace(
        launch,
        preempt_signal="USR1",
        signal_to="ranks",
        memory_limit_bytes=2**30,
        cpu_limit=2.0,
        hold_s=100.0,
        grace_s=300.0,
    )
    plan = plan_of(launching, asked)
    assert str(plan.key) == "17.1.0"
    assert plan.epoch == 7
    assert (plan.signal, plan.to_ranks) == (10, True)
    assert not plan_of(launching, replace(launch, signal_to="main")).to_ranks
    assert not plan_of(
        launching, replace(asked, live=True, node_addresses=("n",), sizes=(1,))
    ).to_ranks
    assert (plan.memory_bytes, plan.cpus, plan.pids_max) == (2**30, 2.0, 100)
    assert (plan.hold_s, plan.grace_s, plan.term_s) == (100.0, 50.0, 10.0)
    assert plan.cwd == launch.working_directory
    assert plan.env["DLQ_BEAT_FILE"] == "/r/17.1.0/beat"
    assert plan.uid == os.getuid()


def test_the_checkpoint_directory_is_made(launching: Launching, launch: Launch) -> None:
    plan_of(launching, launch)
    assert Path(launch.checkpoint_directory).is_dir()


def test_a_gpu_that_is_not_here_is_the_hosts_fault(launching: Launching, launch: Launch) -> None:
    asked = replace(launch, gpu_indexes=(0, 5))
    assert "no GPU 5" in error_of(launching, asked)
    assert code_of(launching, asked) is None


def test_a_full_disk_is_the_hosts_fault(
    launching: Launching, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def makedirs(path: str, mode: int, exist_ok: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(os, "makedirs", makedirs)
    assert "No space left" in error_of(launching, launch)
    assert code_of(launching, launch) is None


def test_a_file_is_no_working_directory(
    launching: Launching, launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "file/below"):
        blocked = replace(launch, working_directory=str(tmp_path / path))
        assert code_of(launching, blocked) == 126


def test_a_job_of_an_older_client_has_the_usual_umask(launching: Launching, launch: Launch) -> None:
    assert plan_of(launching, launch).umask == 0o022
    asked = replace(launch, fields={UMASK.key: 0})
    assert plan_of(launching, asked).umask == 0


def test_a_missing_working_directory_is_refused(launching: Launching, launch: Launch) -> None:
    missing = replace(launch, working_directory=f"{launch.working_directory}/nothing")
    assert "does not exist" in error_of(launching, missing)
    assert code_of(launching, missing) == 127


def test_under_slurm_a_job_starts_in_tmp_instead_of_a_missing_directory(
    launching: Launching, launch: Launch, tmp_path: Path
) -> None:
    """Its output files stay below its own directory, as in Slurm."""
    rules = replace(launching.rules, stand_ins=tmp_path)
    jobs = replace(rules.jobs, roots=())
    fields = {STDOUT.key: "out"}
    missing = replace(launch, working_directory="/nowhere", compat="slurm", fields=fields)
    plan = plan_of(replace(launching, rules=replace(rules, jobs=jobs)), missing)
    assert plan.cwd == "/tmp"
    assert plan.argv[2:4] == ("/nowhere/out", "--")
    assert plan.argv[5:7] == ("--chdir", "/nowhere")
    below = replace(missing, working_directory=f"{tmp_path}/nothing")
    assert code_of(replace(launching, rules=rules), below) == 127, "/tmp is below no root"


@pytest.mark.parametrize("field", ["working_directory", "checkpoint_directory"])
@pytest.mark.parametrize("path", ["/etc", "relative", "{root}/../x", "{root}/a/../../../etc"])
def test_directories_outside_the_roots_are_refused(
    launching: Launching, launch: Launch, tmp_path: Path, field: str, path: str
) -> None:
    hostile = replace(launch, **{field: path.format(root=tmp_path)})  # type: ignore[arg-type]
    assert code_of(launching, hostile) == 126


def test_a_checkpoint_that_a_user_may_have_named_is_below_the_roots(
    launching: Launching, launch: Launch, tmp_path: Path
) -> None:
    outside = replace(launch, resume_from="/etc/dlq/17/1/step-3")
    assert code_of(launching, replace(outside, checkpoint_named=True)) == 126


def test_a_link_out_of_the_roots_is_refused(
    launching: Launching, launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "out").symlink_to("/etc")
    linked = replace(launch, working_directory=str(tmp_path / "out"))
    assert "not below" in error_of(launching, linked)


def test_a_checkpoint_directory_that_cannot_be_made_is_refused(
    launching: Launching, launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    blocked = replace(launch, checkpoint_directory=str(tmp_path / "file" / "x"))
    assert "cannot be made" in error_of(launching, blocked)
    assert code_of(launching, blocked) == 126


def test_a_first_line_that_cannot_be_read_is_the_users_own(
    launching: Launching, launch: Launch
) -> None:
    broken = replace(launch, script="#!/usr/bin/env -S python3 'x\n")
    assert "first line" in error_of(launching, broken)
    assert code_of(launching, broken) == 126


def test_a_script_is_readable_by_its_user_only_and_dropped_with_the_rank(
    launching: Launching, launch: Launch
) -> None:
    text = "#!/bin/sh\necho $(id)\n"
    plan = plan_of(launching, replace(launch, script=text, command=("a", "b c")))
    path = Path(plan.argv[1])
    assert plan.argv == ("/bin/sh", str(path), "a", "b c")
    assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o500
    launching.forget(launch.key)
    assert not path.exists()
    launching.forget(launch.key)


def test_preparing_twice_is_harmless(launching: Launching, launch: Launch) -> None:
    asked = replace(launch, script="#!/bin/sh\n")
    assert plan_of(launching, asked) == plan_of(launching, asked)


@pytest.mark.parametrize(
    ("script", "argv"),
    [
        ("#!/bin/bash\n", ("/bin/bash",)),
        ("#! /usr/bin/env python3\n", ("/usr/bin/env", "python3")),
        ("#!/usr/bin/env -S python3 -u -X dev\n", ("/usr/bin/env", "python3", "-u", "-X", "dev")),
        ("#!/bin/sh -e -x\n", ("/bin/sh", "-e -x")),
        ("#!\necho\n", ("/bin/sh",)),
        ("echo hello\n", ("/bin/sh",)),
        ("", ("/bin/sh",)),
    ],
)
def test_the_interpreter_is_read_as_the_kernel_does(script: str, argv: tuple[str, ...]) -> None:
    assert interpreter_of(script) == argv


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {"A": "x" * 2_000_000}},
        {"environment": {"A=B": "x"}},
        {"environment": {"A\nB": "x"}},
        {"environment": {"DLQ_FENCE": "9.9"}},
        {"environment": {"A": "\0"}},
        {"command": ("a\0b",)},
        {"command": ()},
        {"preempt_signal": "KILL"},
        {"preempt_signal": "9"},
    ],
)
def test_hostile_launches_are_refused_and_nothing_is_started(
    launching: Launching, launch: Launch, changes: dict[str, object]
) -> None:
    assert code_of(launching, replace(launch, **changes)) == 126  # type: ignore[arg-type]


def test_a_runtime_that_this_node_does_not_have_is_the_hosts_fault(
    launching: Launching, launch: Launch
) -> None:
    assert code_of(launching, replace(launch, runtime="podman")) is None


def test_a_marker_job_starts_above_what_its_directory_holds_already(
    launching: Launching, launch: Launch, tmp_path: Path
) -> None:
    old = tmp_path / "ckpt" / "17" / "1" / "old.ckpt"
    old.parent.mkdir(parents=True)
    old.write_text("")
    ahead_ns = 2**62  # by another machine's clock
    os.utime(old, ns=(ahead_ns, ahead_ns))
    marked = replace(launch, checkpoint_marker="*.ckpt")
    assert launching.prepare(marked).floor_mtime_ns == old.stat().st_mtime_ns


def test_a_marker_job_starts_above_all_that_was_written_before_it(
    launching: Launching, launch: Launch, tmp_path: Path
) -> None:
    draft = tmp_path / "ckpt" / "17" / "1" / "draft"
    draft.parent.mkdir(parents=True)
    draft.write_text("")
    marked = replace(launch, checkpoint_marker="*.ckpt")
    assert launching.prepare(marked).floor_mtime_ns >= draft.stat().st_mtime_ns


@pytest.mark.parametrize(("uid", "gid"), [(0, 1000), (1000, 0)])
def test_a_submitter_is_never_root(
    launching: Launching, launch: Launch, uid: int, gid: int
) -> None:
    others = replace(launching, rules=replace(launching.rules, run_as="submitter"))
    asked = replace(launch, user="eve", uid=uid, gid=gid)
    assert "no user id of their own" in error_of(others, asked)
    assert code_of(others, asked) is None


@pytest.mark.parametrize(
    ("user", "uid", "why"),
    [
        ("eve", 1, "uid 1 of the user eve is"),  # another account has the number here
        (pwd.getpwuid(1).pw_name, 54321, "and 1 on this node"),  # and the name another number
        ("eve", -1, "not a user of the cluster any more"),
    ],
)
def test_a_job_starts_only_while_name_and_uid_are_one_account(
    launching: Launching, launch: Launch, user: str, uid: int, why: str
) -> None:
    others = replace(launching, rules=replace(launching.rules, run_as="submitter"))
    asked = replace(launch, user=user, uid=uid, gid=1000)
    assert why in error_of(others, asked)
    check_account(asked, "self")
    check_account(
        replace(asked, user="eve", uid=54321), "submitter"
    )  # known to the users map alone


@ROOT_ONLY
def test_directories_of_a_submitter_are_made_with_his_rights(
    launching: Launching, launch: Launch, tmp_path: Path
) -> None:
    rules = replace(launching.rules, run_as="submitter")
    others = replace(launching, rules=rules)
    theirs = replace(launch, uid=65534, gid=65534)
    os.chmod(tmp_path, 0o755)
    assert "cannot be made" in error_of(others, theirs)


def test_an_agent_that_is_not_root_starts_nobody_elses_job(
    launching: Launching, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    rules = replace(launching.rules, run_as="submitter")
    others = replace(launching, rules=rules)
    assert "only root" in error_of(others, replace(launch, uid=1000, gid=1000))


def test_what_the_master_says_of_an_array_is_told_and_other_words_of_ours_are_refused(
    launching: Launching, launch: Launch
) -> None:
    task = replace(launch, environment={"DLQ_ARRAY_TASK_ID": "4", "DLQ_ARRAY_JOB_ID": "12"})
    told = plan_of(launching, task).env
    assert (told["DLQ_ARRAY_TASK_ID"], told["DLQ_ARRAY_JOB_ID"]) == ("4", "12")
    for name in ("DLQ_JOB_ID", "DLQ_ARRAY_OTHER", "PET_NNODES"):
        assert name in error_of(launching, replace(launch, environment={name: "x"}))


def test_a_rank_without_gpus_has_its_cores_and_their_memory_and_others_the_rest(
    launching: Launching, launch: Launch
) -> None:
    divided = replace(launching, cores=JobCores(2, 1 << 30, (0, 1, 2, 3)))
    own = plan_of(divided, replace(launch, gpu_indexes=(), core_indexes=(0, 1)))
    assert (own.cores, own.memory_bytes, own.weight) == ((2, 3), 2 << 30, None)
    assert own.env["DLQ_CPUS_PER_NODE"] == "2"
    assert own.env["CUDA_VISIBLE_DEVICES"] == ""
    asked = replace(launch, gpu_indexes=(), core_indexes=(0,), memory_limit_bytes=1 << 20)
    assert plan_of(divided, asked).memory_bytes == 1 << 20
    other = plan_of(divided, replace(launch, gpu_indexes=(0, 1)))
    assert (other.cores, other.weight) == ((0, 1), 2)


def test_a_core_that_the_node_does_not_give_is_the_nodes_fault(
    launching: Launching, launch: Launch
) -> None:
    wrong = replace(launch, gpu_indexes=(), core_indexes=(0,))
    assert "gives 0 cores to jobs without GPUs" in error_of(launching, wrong)
    assert code_of(launching, wrong) is None
