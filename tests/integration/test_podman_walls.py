"""What a container keeps its job from, and gives it: limits, mounts, rights, devices, hostile
images.
"""

import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlq_nodeagent.model.launch import Mount
from dlq_nodeagent.model.port import ExitRecord, ExitWhy, Handle
from support.podman_box import (
    PodmanBox,
    PodmanStore,
    make_root_filesystem,
    needs_podman,
    podman_box,
    podman_store,
)
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, needs_podman]

USER = 23456
GROUP = 23457
HOSTILE = "localhost/dlq-hostile:1"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        hostile = make_root_filesystem(made.at / "hostile")
        (hostile / "suid").mkdir()
        shutil.copy(hostile / "bin/busybox", hostile / "suid/id")
        (hostile / "suid/id").chmod(0o4755)
        os.mknod(hostile / "mem", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
        os.mknod(hostile / "disk", 0o666 | stat.S_IFBLK, os.makedev(254, 0))
        (hostile / "trap").symlink_to("../../../../../../etc")
        (hostile / "var/data").mkdir()
        (hostile / "var/data/big").write_bytes(b"x" * 4096)
        made.load(
            hostile,
            HOSTILE,
            "VOLUME /var/data",
            "USER root",
            "ENTRYPOINT /suid/id",
            "ENV LD_PRELOAD=/evil.so",
            "ENV NVIDIA_VISIBLE_DEVICES=all",
            "ENV FROM_IMAGE=yes",
            "WORKDIR /var/data",
        )
        yield made


@pytest.fixture
def box(store: PodmanStore) -> Iterator[PodmanBox]:
    # Not below pytest's own directory: the job's user must be able to pass through the path.
    place = Path("/tmp") / f"dlq-walls-{os.getpid()}"
    place.mkdir(mode=0o755)
    (place / "state").mkdir()
    (place / "state/users.map").write_text(f"{USER}:{GROUP}:{GROUP}\n")
    try:
        with podman_box(place / "state", store) as made:
            yield made
    finally:
        shutil.rmtree(place)


def said(box: PodmanBox, script: str, **fields: Any) -> str:
    """The output of a job that ends well, run as a submitter."""
    handle = run(box, script, **fields)
    record = box.wait_exit(handle)
    assert record.code == 0, (record, box.log(handle))
    return box.log(handle).decode()


def run(box: PodmanBox, script: str, **fields: Any) -> Handle:
    as_user = {"uid": USER, "gid": GROUP, "groups": (GROUP,), "run_as": "submitter"}
    return box.sh(script, **({"allow_root": False} | as_user | fields))


def refused(record: ExitRecord, stage: str) -> str:
    assert record.why is ExitWhy.START_ERROR, record
    assert record.start_error is not None
    assert record.start_error.stage == stage
    return record.start_error.text


# ---- rights


def test_a_job_is_its_submitter_and_can_become_nobody_else(box: PodmanBox) -> None:
    text = said(box, "id -u; id -g; id -G; cat /proc/self/status")
    assert text.split()[:3] == [str(USER), str(GROUP), str(GROUP)]
    status = dict(line.split(":\t") for line in text.splitlines() if ":\t" in line)
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_a_setuid_program_of_an_image_gains_nothing(box: PodmanBox, store: PodmanStore) -> None:
    text = said(box, "/suid/id -u", inside={"image": image_id(store)})
    assert text.strip() == str(USER)


def image_id(store: PodmanStore, name: str = HOSTILE) -> str:
    return store.client.ask("image", "inspect", "--format={{.Id}}", name).strip()


def test_an_images_entrypoint_user_and_volumes_do_not_count_its_variables_do(
    box: PodmanBox, store: PodmanStore
) -> None:
    script = "id -u; pwd; mount; env"
    fields = {"image": image_id(store), "image_cwd": "/var/data"}
    text = said(box, script, inside=fields, env={"MINE": "1", "LD_PRELOAD": ""})
    assert text.split()[:2] == [str(USER), "/var/data"]
    assert " /var/data " not in text
    assert "FROM_IMAGE=yes" in text
    assert "MINE=1" in text
    assert "LD_PRELOAD=/evil.so" not in text
    assert "NVIDIA_VISIBLE_DEVICES=void" in text
    assert store.client.ask("volume", "ls", "--quiet") == ""


def test_an_image_whose_directory_its_user_may_not_enter_starts_elsewhere(box: PodmanBox) -> None:
    assert said(box, "pwd", inside={"image_cwd": "/no/such"}).strip() == "/"
    record = box.wait_exit(run(box, "pwd", cwd="/no/such"))
    assert "No such file or directory: '/no/such'" in refused(record, "chdir")


def test_device_nodes_of_an_image_cannot_be_opened(box: PodmanBox, store: PodmanStore) -> None:
    script = "cat /mem || dd if=/disk of=/dev/null bs=1 count=1 || exit 5"
    handle = run(box, script, inside={"image": image_id(store)})
    assert box.wait_exit(handle).code == 5
    assert box.log(handle).count(b"Operation not permitted") == 2


def test_a_mount_over_a_link_of_an_image_stays_inside_of_it(
    box: PodmanBox, store: PodmanStore, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    before = sorted(os.listdir("/etc"))
    handle = run(
        box,
        "true",
        inside={
            "image": image_id(store),
            "mounts": (Mount("/usr/share", "/trap/dlq-made", read_only=False),),
        },
    )
    box.wait_exit(handle)
    assert sorted(os.listdir("/etc")) == before


def test_the_image_cannot_be_written_but_tmp_can(box: PodmanBox) -> None:
    text = said(box, "echo x > /tmp/x && cat /tmp/x; (echo y > /etc/passwd) 2>&1; true")
    assert text.splitlines()[0] == "x"
    assert "Permission denied" in text or "Read-only" in text


def test_a_job_sees_its_own_files_and_nothing_else_of_the_agents(box: PodmanBox) -> None:
    other = run(box, "echo up; while :; do sleep 1; done")
    box.wait_log(other, b"up")
    handle = run(box, "true")
    box.wait_exit(handle)
    at = box.path(handle)
    state = at.parent
    script = (
        f"ls {state}; echo x > {state}/3.1.0/job/beat; cat {state}/3.1.0/plan; "
        f"cat {state}/3.1.0/podman/cid; echo 1 > {state}/3.1.0/ctl; true"
    )
    text = said(box, script)
    assert text.splitlines()[0] == "3.1.0"
    assert text.count("Permission denied") == 3


# ---- limits


def test_a_job_that_takes_too_much_memory_is_reported_apart(box: PodmanBox) -> None:
    handle = box.sh("tail /dev/zero; echo code $?; exit 7", memory_bytes=64 << 20)
    record = box.wait_exit(handle)
    assert record.oom_kills >= 1
    assert record.code == 7
    assert record.peak_memory_bytes is not None
    assert record.peak_memory_bytes >= 60 << 20


def test_a_main_process_killed_for_memory_is_a_signal_and_an_oom(box: PodmanBox) -> None:
    handle = box.run("/bin/tail", "/dev/zero", memory_bytes=64 << 20)
    record = box.wait_exit(handle)
    assert (record.signal, record.oom_kills >= 1) == (9, True)


def test_memory_of_tmp_and_shm_counts_as_the_jobs(box: PodmanBox) -> None:
    handle = box.sh("dd if=/dev/zero of=/dev/shm/x bs=1M count=500", memory_bytes=64 << 20)
    record = box.wait_exit(handle)
    assert record.oom_kills >= 1 or record.code != 0


def test_a_fork_bomb_stays_below_its_limit_and_can_be_killed(box: PodmanBox) -> None:
    # The shell itself waits without a process of its own: one that cannot fork would end by itself.
    bomb = "mkfifo /tmp/never; exec 3<>/tmp/never; f() { f | f & }; f; read it <&3"
    handle = box.sh(bomb, pids_max=40)
    box.wait_log(handle, b"can't fork")
    pids = box.runtime.usage(handle).pids
    assert pids is not None
    assert pids <= 43  # the job's, process 1 and conmon's two
    box.runtime.kill(handle, epoch=5)
    assert box.wait_exit(handle).why is ExitWhy.KILLED
    assert box.groups_left(handle) == set()


def test_shared_memory_has_the_size_asked_for(box: PodmanBox) -> None:
    text = said(box, "mount", inside={"shm_bytes": 123 << 20})
    line = next(line for line in text.splitlines() if " /dev/shm " in line)
    assert f"size={123 << 10}k" in line


def test_a_cpu_limit_is_on_the_container(box: PodmanBox) -> None:
    handle = box.sh("echo up; while :; do sleep 1; done", cpus=0.5)
    box.wait_log(handle, b"up")
    quotas = [
        path.read_text().strip()
        for each in box.attempt(handle).dirs
        for path in Path(each.path).glob("libpod-*/cpu.cfs_quota_us")
    ]
    maxima = [
        path.read_text().strip()
        for each in box.attempt(handle).dirs
        for path in Path(each.path).glob("libpod-*/cpu.max")
    ]
    assert "50000" in quotas or "50000 100000" in maxima


@pytest.mark.parametrize("network", ["none", "host"])
def test_a_network_is_none_or_the_hosts(box: PodmanBox, network: str) -> None:
    text = said(box, "ls /sys/class/net", inside={"network": network})
    host = sorted(os.listdir("/sys/class/net"))
    assert sorted(text.split()) == (host if network == "host" else ["lo"])


# ---- mounts


def owned(path: Path, mode: int = 0o700) -> Path:
    path.mkdir(parents=True)
    os.chown(path, USER, GROUP)
    path.chmod(mode)
    return path


def test_mounts_are_the_users_files_read_only_where_asked(box: PodmanBox) -> None:
    data = owned(box.state_dir.parent / "data")
    text = said(
        box,
        "echo mine > /rw/file && cat /ro/file; (echo x > /ro/file) 2>&1; true",
        inside={
            "mounts": (
                Mount(str(data), "/rw", read_only=False),
                Mount(str(data), "/ro", read_only=True),
            ),
            "mount_roots": (str(data.parent),),
        },
    )
    assert text.splitlines()[0] == "mine"
    assert "Read-only file system" in text
    assert (data / "file").stat().st_uid == USER
    assert not os.path.ismount(data)


def test_a_directory_that_its_user_cannot_reach_is_not_mounted(box: PodmanBox) -> None:
    secret = box.state_dir.parent / "secret"
    (secret / "open").mkdir(parents=True)
    secret.chmod(0o700)
    mount = Mount(str(secret / "open"), "/x", read_only=True)
    record = box.wait_exit(run(box, "true", inside={"mounts": (mount,)}))
    assert "cannot be opened by this user: Permission denied" in refused(record, "mount")


@pytest.mark.parametrize("place", ["/proc", "/sys/kernel", "/dev/shm", "/run", "/"])
def test_the_systems_own_trees_are_not_mounted(box: PodmanBox, place: str) -> None:
    mount = Mount(place, "/x", read_only=True)
    handle = run(box, "true", inside={"mounts": (mount,)})
    record = box.wait_exit(handle)
    assert refused(record, "mount").startswith(f"'{place}' ")
    assert b"dlq: cannot run the job: mount" in box.log(handle)


def test_a_link_that_leads_out_of_the_allowed_directories_is_refused(box: PodmanBox) -> None:
    allowed = owned(box.state_dir.parent / "allowed")
    os.symlink("/usr/share", allowed / "link")
    mount = Mount(str(allowed / "link"), "/x", read_only=True)
    roots = (str(allowed),)
    record = box.wait_exit(run(box, "true", inside={"mounts": (mount,), "mount_roots": roots}))
    assert "not below any directory this node allows" in refused(record, "mount")


def test_a_path_that_is_swapped_all_the_time_never_leads_out(box: PodmanBox) -> None:
    """The race that a check of a path and a later mount of it would lose."""
    allowed = owned(box.state_dir.parent / "race")
    (owned(allowed / "good") / "mark").write_text("good")
    forbidden = box.state_dir.parent / "forbidden"
    (forbidden / "in").mkdir(parents=True)
    (forbidden / "in/mark").write_text("FORBIDDEN")
    forbidden.chmod(0o700)
    link, stop = allowed / "link", threading.Event()

    def swap() -> None:
        places = [str(allowed / "good"), str(forbidden / "in")]
        while not stop.is_set():
            for place in places:
                os.symlink(place, allowed / "next")
                os.rename(allowed / "next", link)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        wait_until(link.is_symlink, what="the first link")
        mounts = (Mount(str(link), "/x", read_only=True),)
        fields = {"mounts": mounts, "mount_roots": (str(allowed),)}
        outcomes = set()
        for _ in range(12):
            handle = run(box, "cat /x/mark", inside=fields)
            record = box.wait_exit(handle)
            outcomes.add(box.log(handle).decode() if record.code == 0 else "refused")
    finally:
        stop.set()
        swapper.join()
    assert outcomes <= {"good", "refused"}


def test_what_is_mounted_vanishes_with_the_rank_and_the_users_files_stay(box: PodmanBox) -> None:
    data = owned(box.state_dir.parent / "keep")
    (data / "file").write_text("x")
    mount = Mount(str(data), "/data", read_only=False)
    handle = run(box, "true", inside={"mounts": (mount,)})
    box.wait_exit(handle)
    box.runtime.forget(handle)
    assert (data / "file").read_text() == "x"
    assert not box.path(handle).exists()


# ---- devices


def test_a_device_that_was_given_can_be_opened_and_another_cannot(box: PodmanBox) -> None:
    fuse = Path("/dev/fuse")
    if not fuse.exists():
        pytest.skip("no /dev/fuse to play a GPU's node")
    script = "(exec 9<>/dev/nvidia0) 2>&1 && echo given; ls /dev"
    handle = box.sh(script, inside={"devices": ("/dev/fuse:/dev/nvidia0",)})
    assert box.wait_exit(handle).code == 0
    assert b"given" in box.log(handle)
    bare = box.sh("ls /dev")
    box.wait_exit(bare)
    assert b"nvidia0" not in box.log(bare)
