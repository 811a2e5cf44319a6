"""Who of a real process tree gets a job's signals, when they are for the ranks of a launcher."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_nodeagent.model.port import Handle
from support.process_box import SYSTEM_ENV, ProcessBox, process_box
from support.waiting import wait_until

# `sh waits.sh NAME [COMMAND]` runs the command, says that it is there, and then every signal it
# gets.
WAITS = """\
trap "echo $1 told" USR1
eval "$2"
echo "$1 ready"
while :; do sleep 1000 & wait $!; done
"""
WORKER = "sh waits.sh worker &"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ProcessBox]:
    (tmp_path / "waits.sh").write_text(WAITS)
    tmp_path.chmod(0o711)
    with process_box(tmp_path / "state", "none") as made:
        yield made


def start(box: ProcessBox, command: str, *ready: str, to_ranks: bool = True, **env: str) -> Handle:
    """A launcher that runs this command; returns when all these are ready for signals."""
    handle = box.run(
        "/bin/sh", "waits.sh", "launcher", command,
        cwd=str(box.state_dir.parent), env=SYSTEM_ENV | env, to_ranks=to_ranks,
    )  # fmt: skip
    for name in ("launcher", *ready):
        box.wait_log(handle, f"{name} ready\n".encode())
    return handle


def told(box: ProcessBox, handle: Handle, *expected: str) -> None:
    """A signal and a notice reach all that are expected, and nobody else by then."""

    def all_told(times: int) -> bool:
        log = box.log(handle)
        return all(log.count(f"{name} told\n".encode()) == times for name in expected)

    box.runtime.signal(handle, signal.SIGUSR1, epoch=5)
    wait_until(lambda: all_told(1), what=f"a signal to {expected}")
    box.runtime.stop(handle, epoch=5, signal=signal.SIGUSR1, grace_s=600, term_s=10)
    wait_until(lambda: all_told(2), what=f"a notice to {expected}")
    box.runtime.kill(handle, epoch=5)
    box.wait_exit(handle)
    lines = [line for line in box.log(handle).decode().splitlines() if line.endswith(" told")]
    assert sorted(lines) == sorted(2 * [f"{name} told" for name in expected])


def test_the_ranks_get_it_and_neither_launcher_nor_workers(box: ProcessBox) -> None:
    ranks = "; ".join(f"LOCAL_RANK={at} sh waits.sh rank{at} '{WORKER}' &" for at in (0, 1))
    handle = start(box, ranks.replace("&;", "&"), "rank0", "rank1", "worker")
    wait_until(lambda: box.log(handle).count(b"worker ready\n") == 2, what="both workers")
    told(box, handle, "rank0", "rank1")


def test_ranks_are_found_below_a_wrapper_and_what_has_left_the_tree_is_not(box: ProcessBox) -> None:
    daemon = "(sh waits.sh daemon &)"
    wrapped = f"sh waits.sh wrapper 'LOCAL_RANK=0 sh waits.sh rank \"{daemon}\" &' &"
    handle = start(box, wrapped, "wrapper", "rank", "daemon")
    told(box, handle, "rank")


def test_without_ranks_it_is_for_the_main_process(box: ProcessBox) -> None:
    told(box, start(box, WORKER, "worker"), "launcher")


def test_a_main_process_that_is_a_rank_itself_gets_it_and_not_its_workers(box: ProcessBox) -> None:
    told(box, start(box, WORKER, "worker", LOCAL_RANK="0"), "launcher")


def test_signals_are_for_the_main_process_unless_the_plan_says_so(box: ProcessBox) -> None:
    handle = start(box, "LOCAL_RANK=0 sh waits.sh rank &", "rank", to_ranks=False)
    told(box, handle, "launcher")


def test_a_variable_with_a_longer_name_makes_no_rank(box: ProcessBox) -> None:
    other = "LOCAL_RANKS=1 NOT_LOCAL_RANK=1 X=' LOCAL_RANK=1' sh waits.sh other &"
    told(box, start(box, other, "other"), "launcher")
