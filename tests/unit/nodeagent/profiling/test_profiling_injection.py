"""What the profiler adds to a rank: in front of what is the user's own, and in the way of
nothing.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlq_common.daemon.config import Bytes
from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.launch.launching import Launching
from dlq_nodeagent.launch.rules import AgentJobsConfig, LaunchRules, OutputConfig
from dlq_nodeagent.model.launch import ContainerPlan, LaunchPlan, Mount, RankKey
from dlq_nodeagent.model.messages import ContainerRequest, Launch, ProfileOrder
from dlq_nodeagent.model.port import JobFiles
from dlq_nodeagent.profiling.injecting import Injecting, copy_parts
from dlq_nodeagent.profiling.places import Places
from dlq_nodeagent.runtimes.podman.pull import Say
from dlq_nodeagent.runtimes.podman.pulls import Done, PullWish
from dlq_profiler.injection import Parts
from dlq_profiler.records.control import read_control
from support.agent_bench import a_launch

ME = UserRights(os.geteuid(), os.getegid(), tuple(os.getgroups()))
OURS = ("DLQ_PROF_DIR", "LD_PRELOAD", "NCCL_PROFILER_PLUGIN", "PYTHONPATH")
THEIRS = {
    "LD_PRELOAD": "/opt/tcmalloc.so /opt/other.so",
    "NCCL_PROFILER_PLUGIN": "/opt/inspector.so",
    "PYTHONPATH": "/home/me/lib:/home/me/more",
}


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """As a wheel has them."""
    for name in ("lib/libdlqprof.so", "lib/libnccl-profiler-dlq.so", "hook/sitecustomize.py"):
        path = tmp_path / "installed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    at = tmp_path / "installed"
    return Parts(at / "lib/libdlqprof.so", at / "lib/libnccl-profiler-dlq.so", at / "hook")


class Images:
    """Containers of one image that sets a few variables."""

    def plan(
        self, launch: Launch, rights: UserRights, devices: Sequence[Device], script: Path | None
    ) -> ContainerPlan:
        words = tuple(f"{name}={value}" for name, value in {**THEIRS, "PATH": "/image/bin"}.items())
        return ContainerPlan(image="feed", image_environment=words)

    def fetch(self, key: RankKey, wish: PullWish, say: Say, done: Done) -> None:
        """Never asked."""

    def abandon(self, key: RankKey) -> None:
        """Never asked."""

    def forget(self, key: RankKey) -> None:
        """Nothing to forget."""


def launching(tmp_path: Path, injecting: Injecting | None) -> Launching:
    rules = LaunchRules(
        jobs=AgentJobsConfig(runtime="podman", allow_root=True, pids_max=100),
        output=OutputConfig(Bytes(4096), Bytes(8192), Bytes(0)),
        run_as="self",
        scripts=tmp_path,
    )
    return Launching(
        rules=rules,
        devices=FakeDevices(parse_virtual("2xH100-80GB"), "n1").devices(),
        job_files=lambda key: JobFiles("/n", "/j", "/b", "/d"),
        now_s=lambda: 0.0,
        containers=Images(),
        injecting=injecting,
    )


def injecting(tmp_path: Path, parts: Parts | None, **changes: Any) -> Injecting:
    return Injecting(places=Places.of(tmp_path), parts=lambda: parts, **changes)


def planned(tmp_path: Path, put: Injecting | None, **changes: Any) -> LaunchPlan:
    asked: dict[str, Any] = {
        "command": ("/bin/sh", "-c", "true"),
        "profile": ProfileOrder(60.0),
    } | changes
    launch = a_launch(checkpoint_directory="", **asked)
    preparation = launching(tmp_path, put).prepare(launch)
    assert preparation.plan is not None, preparation.error
    return preparation.plan


def limits(tmp_path: Path) -> tuple[bool, tuple[str, ...]]:
    before = Places.of(tmp_path).before(a_launch().key)
    assert before is not None
    return before.recording, before.limits


def test_ours_come_first_and_a_plugin_of_the_users_stays(tmp_path: Path, parts: Parts) -> None:
    plan = planned(tmp_path, injecting(tmp_path, parts), environment=THEIRS)
    lib = tmp_path / "installed/lib"
    assert plan.env["LD_PRELOAD"] == f"{lib}/libdlqprof.so:/opt/tcmalloc.so /opt/other.so"
    assert plan.env["PYTHONPATH"] == f"{tmp_path}/installed/hook:/home/me/lib:/home/me/more"
    assert plan.env["NCCL_PROFILER_PLUGIN"] == "/opt/inspector.so"
    assert limits(tmp_path) == (True, ("plugin-taken",))
    free = planned(tmp_path, injecting(tmp_path, parts))
    assert free.env["NCCL_PROFILER_PLUGIN"] == f"{lib}/libnccl-profiler-dlq.so"
    assert (free.env["LD_PRELOAD"], limits(tmp_path)) == (f"{lib}/libdlqprof.so", (True, ()))


def test_a_rank_is_changed_only_where_it_is_ordered(tmp_path: Path, parts: Parts) -> None:
    without = planned(tmp_path, None, environment=THEIRS)
    unasked = planned(tmp_path, injecting(tmp_path, parts), environment=THEIRS, profile=None)
    assert unasked == without
    assert not (tmp_path / "profiles").exists()
    asked = planned(tmp_path, injecting(tmp_path, parts), environment=THEIRS)
    changed = {name for name in asked.env if asked.env[name] != without.env.get(name)}
    assert changed == {"DLQ_PROF_DIR", "LD_PRELOAD", "PYTHONPATH"}
    assert replace(asked, env=without.env) == without


def test_a_directory_with_the_switch_on_is_there_before_the_start(
    tmp_path: Path, parts: Parts
) -> None:
    plan = planned(tmp_path, injecting(tmp_path, parts), gpu_indexes=(0, 1))
    rings = Path(plan.env["DLQ_PROF_DIR"])
    control = read_control(rings)
    assert (control.mode, control.file_limit) == (1, 40)
    assert control.ring_bytes * control.file_limit <= 512 << 20
    assert control.ring_bytes <= 14 << 20
    assert (rings.stat().st_mode & 0o777, rings.parent.stat().st_mode & 0o777) == (0o700, 0o711)


def test_a_container_has_all_of_it_at_the_same_place_and_before_its_images_own(
    tmp_path: Path, parts: Parts
) -> None:
    boxed = {
        "container": ContainerRequest(image="reg.example/a:1"),
        "working_directory": "",
        "command": ("/only/in/the/image",),
    }
    plain = planned(tmp_path, None, **boxed)
    plan = planned(tmp_path, injecting(tmp_path, parts), **boxed)
    assert plain.container is not None
    assert plan.container is not None
    rings = plan.env["DLQ_PROF_DIR"]
    at = tmp_path / "installed"
    assert set(plan.container.own_mounts) == {
        Mount(rings, rings, read_only=False),
        Mount(f"{at}/lib", f"{at}/lib", read_only=True),
        Mount(f"{at}/hook", f"{at}/hook", read_only=True),
    }
    assert replace(plan.container, own_mounts=()) == plain.container
    assert plan.env["LD_PRELOAD"] == f"{at}/lib/libdlqprof.so:{THEIRS['LD_PRELOAD']}"
    assert plan.env["PYTHONPATH"] == f"{at}/hook:{THEIRS['PYTHONPATH']}"
    assert "NCCL_PROFILER_PLUGIN" not in plan.env  # the image's own is there by itself
    assert "PATH" not in plan.env
    own = planned(tmp_path, injecting(tmp_path, parts), environment={"PYTHONPATH": "/x"}, **boxed)
    assert own.env["PYTHONPATH"] == f"{at}/hook:/x"  # as without us: the job's, not the image's


@pytest.mark.parametrize(
    ("changes", "allowed", "reason"),
    [({}, False, "switched-off"), ({"parts": lambda: None}, True, "no-library")],
)
def test_without_the_profiler_a_rank_is_as_it_was_and_the_reason_is_noted(
    tmp_path: Path, parts: Parts, changes: dict[str, Any], *, allowed: bool, reason: str
) -> None:
    put = replace(injecting(tmp_path, parts, allowed=allowed), **changes)
    plan = planned(tmp_path, put, environment=THEIRS)
    assert plan == planned(tmp_path, None, environment=THEIRS)
    assert limits(tmp_path) == (False, (reason, "plugin-taken"))


def test_a_full_disk_keeps_no_rank_from_starting(tmp_path: Path, parts: Parts) -> None:
    (tmp_path / "profiles").write_text("no directory can be made here")
    plan = planned(tmp_path, injecting(tmp_path, parts), environment=THEIRS)
    assert plan == planned(tmp_path, None, environment=THEIRS)


@pytest.mark.parametrize("place", ["a b", "a:b", "a,b"])
def test_a_place_that_the_loader_would_take_for_two_is_not_used(
    tmp_path: Path, parts: Parts, place: str
) -> None:
    shutil.move(tmp_path / "installed", tmp_path / place)
    moved = Parts(*(Path(str(part).replace("installed", place)) for part in parts if part))
    plan = planned(tmp_path, injecting(tmp_path, moved))
    assert not set(OURS) & plan.env.keys()
    assert limits(tmp_path) == (False, ("library-unreachable",))
    copies = tmp_path / "profiler"
    copy_parts(copies, moved)
    copied = planned(tmp_path, injecting(tmp_path, moved, copies=copies))
    assert copied.env["LD_PRELOAD"] == f"{copies}/lib/libdlqprof.so"
    assert copied.env["PYTHONPATH"] == f"{copies}/hook"
    assert copied.env["NCCL_PROFILER_PLUGIN"] == f"{copies}/lib/libnccl-profiler-dlq.so"


def test_a_copy_is_preferred_until_it_cannot_be_loaded(tmp_path: Path, parts: Parts) -> None:
    copies = tmp_path / "profiler"
    copy_parts(copies, parts)
    put = injecting(tmp_path, parts, copies=copies)
    assert planned(tmp_path, put).env["LD_PRELOAD"] == f"{copies}/lib/libdlqprof.so"
    (copies / "lib/libdlqprof.so").unlink()
    assert planned(tmp_path, put).env["LD_PRELOAD"] == str(parts.preload)


def test_libraries_are_copied_again_only_when_they_are_others(tmp_path: Path, parts: Parts) -> None:
    copies = tmp_path / "profiler"
    copy_parts(copies, parts)
    before = (copies / "lib/libdlqprof.so").stat().st_ino
    copy_parts(copies, parts)
    assert (copies / "lib/libdlqprof.so").stat().st_ino == before
    parts.preload.write_text("newer")
    copy_parts(copies, parts)
    assert (copies / "lib/libdlqprof.so").read_text() == "newer"
    copy_parts(copies, None)


def _elf(path: Path, machine: int) -> str:
    """A program for another processor, as far as its first bytes say."""
    head = bytearray(Path("/bin/true").read_bytes())
    head[18:20] = machine.to_bytes(2, "little")
    path.write_bytes(bytes(head))
    path.chmod(0o755)
    return str(path)


def test_nothing_is_put_into_what_the_loader_would_complain_of(
    tmp_path: Path, parts: Parts
) -> None:
    for command, reason in (
        ((_elf(tmp_path / "other", 243),), "other-machine"),
        (("/no/such/program",), "not-found"),
    ):
        plan = planned(tmp_path, injecting(tmp_path, parts), command=command)
        assert not set(OURS) & plan.env.keys()
        assert limits(tmp_path) == (False, (reason,))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler")
def test_a_static_program_is_known_before_it_starts(tmp_path: Path, parts: Parts) -> None:
    subprocess.run(
        ["gcc", "-static", "-nostdlib", "-x", "c", "-o", tmp_path / "static", "-"],
        input=b"void _start(void) { for (;;) ; }", check=True,
    )  # fmt: skip
    planned(tmp_path, injecting(tmp_path, parts), command=(str(tmp_path / "static"),))
    assert limits(tmp_path) == (True, ("static",))
    script = "#!/bin/sh\ntrue\n"
    planned(tmp_path, injecting(tmp_path, parts), command=(), script=script)
    assert limits(tmp_path) == (True, ())
