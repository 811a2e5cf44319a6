"""Output files on file systems that are full or hung, and names that are no files.

The disks are real ones, mounted in a namespace of the test's own: tmpfs, and ext4 on a loop device.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_nodeagent.shim.binary import OUTPUT_NAME, ensure_program
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.long("integration/test_output_files.py"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount file systems"),
]
PROGRAM = str(ensure_program(OUTPUT_NAME))
CANNOT_OPEN = 53
NOTE = re.compile(rb"\n\[dlq: (\d+) bytes were not written: ([^\]]+)\]\n")
EXT4 = """
truncate -s 16M "$AT/image"
mkfs.ext4 -q -m 0 -O ^has_journal "$AT/image"
mount -o loop "$AT/image" "$AT/disk"
"""
TMPFS = """
mount -t tmpfs -o size=4m none "$AT/disk"
"""


@pytest.fixture
def at() -> Iterator[Path]:
    """A directory below which a disk may be mounted; every user can pass it."""
    made = Path("/tmp") / f"dlq-disks-{os.getpid()}"
    (made / "disk").mkdir(parents=True)
    yield made
    shutil.rmtree(made)


def on_disk(at: Path, mounting: str, script: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script beside a new disk at $AT/disk, which goes with it. Skips where none can be
    mounted.
    """
    words = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c"]
    whole = f"set -e\n({mounting}) >&2 || exit 99\nset +e\n{script}"
    done = subprocess.run(
        [*words, whole], capture_output=True, timeout=120, env={**os.environ, "AT": str(at)} | NAMES
    )
    if done.returncode == 99:
        pytest.skip(f"this host mounts no such disk: {done.stderr.decode()[-200:]}")
    return done


NAMES = {"OUTPUT": PROGRAM}


@pytest.mark.parametrize("disk", [TMPFS, EXT4], ids=["tmpfs", "ext4"])
def test_a_full_disk_stops_no_program_and_every_byte_is_accounted_for(at: Path, disk: str) -> None:
    program = """
        head -c 20000000 /dev/zero; sleep 1
        rm "$AT/disk/filler"; echo room; sleep 0.3; echo last"""
    done = on_disk(
        at,
        disk,
        f"""
        head -c 2000000 /dev/zero > "$AT/disk/filler"
        "$OUTPUT" truncate "$AT/disk/out" -- /bin/sh -c '{program}'
        code=$?
        cp "$AT/disk/out" "$AT/kept"
        exit $code""",
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) == 20_000_000 + len(b"room\nlast\n"), "the log has all of it"
    text = (at / "kept").read_bytes()
    notes = NOTE.findall(text)  # a file system may have room again for some bytes
    assert {why for _, why in notes} == {b"No space left on device"}
    kept = NOTE.sub(b"", text)
    assert kept.endswith(b"\0room\nlast\n")
    assert len(kept) + sum(int(count) for count, _ in notes) == 20_000_000 + len(b"room\nlast\n")


def test_a_disk_that_stays_full_is_told_of_in_the_log(at: Path) -> None:
    done = on_disk(
        at,
        TMPFS,
        """
        "$OUTPUT" truncate "$AT/disk/out" -- /bin/sh -c 'head -c 9000000 /dev/zero; exit 3'
        code=$?
        stat -c %s "$AT/disk/out" > "$AT/size"
        exit $code""",
    )
    assert done.returncode == 3
    assert len(done.stdout) == 9_000_000
    missed = 9_000_000 - int((at / "size").read_text())
    wanted = f"dlq: {missed} bytes were not written to {at}/disk/out: No space left on device\n"
    assert done.stderr.decode() == wanted


def test_a_limit_on_the_size_of_files_ends_no_program(at: Path) -> None:
    done = on_disk(
        at,
        "true",
        """
        ulimit -f 2000  # blocks of 512 bytes
        "$OUTPUT" truncate "$AT/out" -- /bin/sh -c 'head -c 3000000 /dev/zero; exit 4'""",
    )
    assert (done.returncode, len(done.stdout)) == (4, 3_000_000)
    size = (at / "out").stat().st_size
    assert size == 2000 * 512
    assert f"{3_000_000 - size} bytes were not written" in done.stderr.decode()
    assert "File too large" in done.stderr.decode()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace makes the error")
def test_an_error_of_the_disk_ends_no_program(at: Path) -> None:
    """As by a quota, which not every kernel has: from the fourth write on."""
    out = at / "out"
    words = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(out)]
    done = subprocess.run(
        [*words, "-e", "inject=write:error=EDQUOT:when=4+", PROGRAM, "truncate", str(out), "--",
         "/bin/sh", "-c", "head -c 3000000 /dev/zero; exit 5"],
        capture_output=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, len(done.stdout)) == (5, 3_000_000), done.stderr
    missed = 3_000_000 - out.stat().st_size
    assert missed > 0
    wanted = f"dlq: {missed} bytes were not written to {out}: Disk quota exceeded\n"
    assert done.stderr.decode() == wanted


def test_a_frozen_disk_stops_no_program_and_the_end_is_bounded(at: Path) -> None:
    """The writer hangs in the kernel, where SIGKILL does not reach it until the disk goes on."""
    program = """
        echo first; sleep 0.3; fsfreeze -f "$AT/disk"
        head -c 5000000 /dev/zero; echo end; exit 6"""
    done = on_disk(
        at,
        EXT4,
        f"""
        "$OUTPUT" truncate "$AT/disk/out" -- /bin/sh -c '{program}'
        code=$?
        cp "$AT/disk/out" "$AT/before" &
        fsfreeze -u "$AT/disk"
        wait
        exit $code""",
    )
    assert done.returncode == 6, done.stderr
    assert len(done.stdout) == 5_000_000 + len(b"first\nend\n"), "the log has all of it"
    assert b"an output file is not complete: its file system is too slow" in done.stderr


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """An ext4 on which agents may write, too; it goes on at the end of the test at the latest."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["/bin/sh", "-ec", EXT4], env={**os.environ, "AT": str(tmp_path)}, capture_output=True
    )
    if made.returncode:
        pytest.skip(f"this host mounts no such disk: {made.stderr.decode()[-200:]}")
    yield disk
    subprocess.run(["fsfreeze", "-u", disk], capture_output=True)
    subprocess.run(["umount", disk], check=True)


def test_a_job_on_a_frozen_disk_ends_when_it_goes_on_and_its_node_comes_back(
    tmp_path: Path, frozen: Path
) -> None:
    (tmp_path / "cluster").mkdir()
    with Daemons(tmp_path / "cluster", ("n1",)).up() as daemons:
        file, go = frozen / "out", tmp_path / "go"
        shell = f"echo first; while [ ! -e {go} ]; do sleep 0.1; done; echo second; exit 6"
        words = ("submit", "--parsable", "-o", str(file), "--", "/bin/sh", "-c", shell)
        job = daemons.said(*words).strip()
        wait_until(lambda: file.exists() and file.read_text() == "first\n", what="output")
        subprocess.run(["fsfreeze", "-f", frozen], check=True)
        go.touch()
        wait_until(lambda: "is not complete" in daemons.said("logs", job), what="the log tells it")
        wait_until(lambda: "cleaning" in daemons.said("nodes"), what="the node is closed")
        subprocess.run(["fsfreeze", "-u", frozen], check=True)
        assert daemons.dlq("wait", job).code == 6
        wait_until(lambda: "cleaning" not in daemons.said("nodes"), what="the node is open")


# ---- names


def as_user(at: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """`dlq-output` as nobody, over `echo out`."""
    program = at / "dlq-output"
    shutil.copy(PROGRAM, program)
    program.chmod(0o755)
    return subprocess.run(
        [str(program), *words, "--", "/bin/echo", "out"],
        capture_output=True, user=65534, group=65534, extra_groups=[], timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    "target",
    [
        "/dev/zero", "/dev/full", "/dev/tty", "/dev/stdout", "/proc/self/mem", "/proc/self/fd/1",
        "/proc/self/oom_score_adj", "/proc/self/comm", "/sys/kernel/mm/ksm/run", "FIFO", "SOCKET",
        "DIRECTORY", "LOOP", "SECRET", "SECRET-DIRECTORY/new",
    ],
)  # fmt: skip
@pytest.mark.parametrize("through", ["name", "link"])
def test_a_name_that_is_no_file_of_the_user_opens_nothing(
    at: Path, target: str, through: str
) -> None:
    own = at / "own"
    own.mkdir()
    os.chown(own, 65534, 65534)
    os.mkfifo(own / "FIFO", 0o666)
    (own / "DIRECTORY").mkdir()
    (own / "LOOP").symlink_to(own / "LOOP")
    (own / "SECRET").symlink_to(at / "secret")
    (own / "SECRET-DIRECTORY").symlink_to(at / "closed")
    (at / "secret").write_text("secret\n")
    (at / "secret").chmod(0o644)
    (at / "closed").mkdir(0o755)
    subprocess.run(
        ["python3", "-c", "import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])",
         str(own / "SOCKET")], check=True,
    )  # fmt: skip
    (own / "SOCKET").chmod(0o777)
    path = target if target.startswith("/") else str(own / target)
    if through == "link":
        (own / "link").symlink_to(path)
        path = str(own / "link")
    done = as_user(at, "truncate", path)
    assert (done.returncode, done.stdout) == (CANNOT_OPEN, b""), done.stderr
    assert f"dlq: cannot write the output file {path}: " in done.stderr.decode()
    assert (at / "secret").read_text() == "secret\n"
    assert os.listdir(at / "closed") == []


def test_a_link_that_is_swapped_while_it_is_opened_never_gives_more_than_the_users_rights(
    at: Path,
) -> None:
    own = at / "own"
    own.mkdir()
    os.chown(own, 65534, 65534)
    secret = at / "secret"
    secret.write_text("secret\n")
    swapping = f"""
        cd {own}; : > mine; mkfifo fifo
        while :; do ln -sfn {secret} name; ln -sfn mine name; ln -sfn fifo name; done"""
    with subprocess.Popen(
        ["/bin/sh", "-c", swapping], user=65534, group=65534, extra_groups=[]
    ) as swapper:
        wait_until((own / "name").exists, what="the name", timeout_s=60.0)
        codes = {as_user(at, "append", str(own / "name")).returncode for _ in range(100)}
        swapper.send_signal(signal.SIGKILL)
    assert codes <= {0, CANNOT_OPEN}
    assert secret.read_text() == "secret\n"


# ---- many writers of one file


def test_thousands_of_tasks_append_whole_lines_to_one_file(at: Path) -> None:
    """2,000 writers, eight at a time; an array of 10,000 differs in length alone."""
    count, lines = 2_000, 3
    task = f'for n in $(seq {lines}); do echo "task $0 line $n of its output"; done'
    done = subprocess.run(
        f"seq {count} | xargs -P 8 -I I {PROGRAM} append {at}/all -- /bin/sh -c '{task}' I",
        shell=True, stdout=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0
    found = sorted((at / "all").read_text().splitlines())
    wanted = [
        f"task {each} line {line} of its output"
        for each in range(1, count + 1)
        for line in range(1, lines + 1)
    ]
    assert found == sorted(wanted)
