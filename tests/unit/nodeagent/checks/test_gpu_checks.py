"""Checks of real GPUs against C fakes of CUDA's driver, of cuBLAS and of NCCL, with their faults.

The fake NCCL sends the bytes of two processes by a socket, so a pair really waits for each other.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dlq_nodeagent.checks.nccl import Stages, watched
from dlq_nodeagent.checks.pair import Means, chosen, told_each_other
from dlq_nodeagent.checks.result import FAILED, PASSED, UNKNOWN, NotMeasured, WrongResult
from support.gpu_box import GpuBox, compile_check_fakes

SECOND = "GPU-2f0c3c2a-58b1-4d6e-9a77-0123456789ab"
SMALL = ("--part", "0.008", "--seconds", "0")  # a side of 64, and 2 MB of sums
FEW = ("--limit", "0.0000001")
MUCH = ("--limit", "100000")
CORES = "a product on GPU 0 differs from that of the cores"
BLAS = "GPU 0: cublasSgemm_v2: cuBLAS error 13"
LONG = pytest.mark.long("unit/nodeagent/checks/test_gpu_checks.py")


class Said(NamedTuple):
    """A check has ended so, with this line."""

    code: int
    told: dict[str, Any]


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_check_fakes(tmp_path_factory.mktemp("fakes"))


@pytest.fixture
def box(fakes: Path, tmp_path: Path) -> GpuBox:
    made = GpuBox.at(fakes, tmp_path)
    made.nvml.add_gpu(SECOND)
    return made


def begun(box: GpuBox, *words: str, **more: str) -> subprocess.Popen[str]:
    """A check on both GPUs of the box."""
    environment = {**box.environment(), "CUDA_VISIBLE_DEVICES": "0,1", **more}
    command = [sys.executable, "-m", "dlq_nodeagent.checks", *words, *SMALL]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> Said:
    out, _ = process.communicate(timeout=60)
    assert len(out.encode()) <= 200
    return Said(process.returncode, json.loads(out))


def check(box: GpuBox, *words: str, **more: str) -> Said:
    return ended(begun(box, *words, **more))


def pair(
    box: GpuBox, *words: str, first: str = "", second: str = "", **more: str
) -> tuple[Said, Said]:
    """Both nodes of an all-reduce, each with a fault of its own in NCCL."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = str(door.getsockname()[1])
    both = {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **more}
    nodes = [
        begun(box, "all_reduce", *words, NODE_RANK=str(node), FAKE_NCCL=fault, **both)
        for node, fault in enumerate((first, second))
    ]
    one, other = [ended(node) for node in nodes]
    return one, other


@pytest.mark.parametrize(
    ("kind", "on", "unit"),
    [("memory", "CUDA, 2 GPUs", "GB/s"), ("matrix", "cuBLAS, 2 GPUs", "GFLOP/s")],
)
def test_each_gpu_is_measured_and_the_slowest_is_named(
    kind: str, on: str, unit: str, box: GpuBox
) -> None:
    code, told = check(box, kind, *FEW)
    assert (code, told["passed"], told["on"], told["unit"]) == (PASSED, True, on, unit)
    assert told["figure"] > 0.0
    assert told["why"].startswith("the slowest is GPU ")


def test_a_gpu_that_is_slower_than_its_limit_fails_and_is_named(box: GpuBox) -> None:
    code, told = check(box, "memory", *MUCH, FAKE_CUDA_FAULT="slow|1|2000")
    assert (code, told["passed"], told["why"]) == (FAILED, False, "the slowest is GPU 1")


@pytest.mark.parametrize(
    ("kind", "name", "fault", "why"),
    [
        ("memory", "FAKE_CUDA_FAULT", "wrong|1", "GPU 1 copies something else than it was given"),
        (
            "memory",
            "FAKE_CUDA_FAULT",
            "error|cuCtxSynchronize|214",
            "GPU 0: cuCtxSynchronize: ERROR_ECC_UNCORRECTABLE",
        ),
        ("matrix", "FAKE_CUBLAS", "wrong|2", "a product on GPU 0 differs from the first one"),
        ("matrix", "FAKE_CUBLAS", "nan|6", "a product on GPU 1 differs from the first one"),
        ("matrix", "FAKE_CUBLAS", "always_wrong", CORES),
        pytest.param(
            "matrix", "FAKE_CUBLAS", "error|13", BLAS, marks=LONG
        ),
    ],
)  # fmt: skip
def test_a_wrong_byte_a_wrong_product_and_an_error_are_found_whatever_the_limit(
    kind: str, name: str, fault: str, why: str, box: GpuBox
) -> None:
    code, told = check(box, kind, **{name: fault})
    assert (code, told["passed"], told["why"]) == (FAILED, False, why)


def test_a_lost_gpu_fails_and_a_full_one_tells_nothing(box: GpuBox) -> None:
    code, told = check(box, "memory", CUDA_VISIBLE_DEVICES="0,1,2")
    assert (code, told["why"]) == (FAILED, "CUDA sees 2 of 3 GPUs")
    box.nvml.use(SECOND, 84_891_000_000)
    code, told = check(box, "memory", *FEW)
    assert (code, told["why"]) == (UNKNOWN, "GPU 1 has no memory left for a check")


def test_without_a_library_nothing_is_learned_and_no_core_computes_instead(
    box: GpuBox, tmp_path: Path
) -> None:
    bare = str(tmp_path / "bare")
    Path(bare).mkdir()
    for kind, why in (("memory", "libcuda not found"), ("matrix", "libcuda not found")):
        code, told = check(box, kind, *FEW, LD_LIBRARY_PATH=bare)
        assert (code, told["passed"], told["why"]) == (UNKNOWN, None, why)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (Path(bare) / name).symlink_to(box.nvml.library / name)
    code, told = check(box, "matrix", *FEW, LD_LIBRARY_PATH=bare)
    assert (code, told["passed"], told["why"]) == (UNKNOWN, None, "cuBLAS not found, and no torch")


def test_a_pair_sums_over_nccl_on_all_its_gpus(box: GpuBox) -> None:
    for code, told in pair(box, *FEW):
        assert (code, told["passed"], told["on"]) == (PASSED, True, "NCCL 2.21.5, 4 GPUs")
        assert told["figure"] > 0.0


def test_a_slow_pair_is_below_its_limit(box: GpuBox) -> None:
    for code, told in pair(box, *MUCH, second="slow|20"):
        assert (code, told["passed"], told["on"]) == (FAILED, False, "NCCL 2.21.5, 4 GPUs")


def test_one_wrong_sum_is_found_on_the_node_that_has_it(box: GpuBox) -> None:
    one, other = pair(box, second="wrong|5")
    assert (other.code, other.told["why"]) == (
        FAILED, "GPU 1: 1 of 536870 sums over NCCL are wrong"
    )  # fmt: skip
    assert one.code == UNKNOWN


@pytest.mark.parametrize(
    ("fault", "code", "why"),
    [
        ("error|ncclGroupEnd|2", FAILED, "ncclGroupEnd: unhandled system error"),
        pytest.param(
            "error|ncclAllReduce|1", FAILED, "ncclAllReduce: unhandled cuda error", marks=LONG
        ),
        ("error|ncclCommInitRank|5", UNKNOWN, "ncclCommInitRank: invalid usage"),
        ("async|3", FAILED, "NCCL: internal error"),
    ],
)
def test_an_error_of_nccl_fails_with_its_words_and_one_of_ours_does_not(
    fault: str, code: int, why: str, box: GpuBox
) -> None:
    one, other = pair(box, first=fault)
    assert (one.code, one.told["why"]) == (code, why)
    assert other.code == UNKNOWN, "it has only lost its partner"


def test_a_step_that_hangs_fails_and_is_named() -> None:
    stages, ours, theirs = Stages(), *socket.socketpair()
    over = threading.Event()

    def work() -> float:
        stages.enter("ncclCommInitRank")
        stages.enter("all-reduce 3 over NCCL")
        over.wait()
        return 1.0

    with ours, theirs:
        with pytest.raises(WrongResult, match=r"^all-reduce 3 over NCCL did not end within 0.1 s"):
            watched(stages, work, ours, lambda: None, 0.1)
        over.set()
        assert watched(stages, work, ours, lambda: None, 60.0) == 1.0


def test_a_node_that_waits_for_one_that_has_left_tells_nothing() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(NotMeasured, match="the other node has left"):
        watched(Stages(), lambda: float(threading.Event().wait()), ours, lambda: None, 60.0)


@LONG
@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("hang|ncclCommInitRank", "ncclCommInitRank"),
        ("hang|ncclAllReduce", "all-reduce 0 over NCCL"),
    ],
)
def test_a_process_whose_nccl_hangs_ends_by_itself(fault: str, stage: str, box: GpuBox) -> None:
    found = pair(box, "--patience", "10", second=fault)
    whys = [told.get("why") for code, told in found if code == FAILED]
    assert f"{stage} did not end within 10 s: it hangs" in whys


def test_without_the_same_nccl_on_both_a_limit_is_held_against_neither(box: GpuBox) -> None:
    why = "NCCL 2.21.5 here and 2.19.3 there, socket over the host network"
    for words, code, passed in ((MUCH, UNKNOWN, None), ((), PASSED, True)):
        one, other = pair(box, *words, second="version|21903")
        assert (one.code, one.told["passed"], one.told["on"]) == (code, passed, "numpy, a socket")
        assert one.told["why"].startswith(why)
        assert other.code == code


def test_both_nodes_choose_the_same_means_and_say_why_it_is_not_nccl() -> None:
    sound, none = Means(8, "2.21.5", "", torch=True), Means(8, "", "NCCL not found", torch=True)
    assert chosen(sound, sound) == ("2.21.5", "")
    assert chosen(none, sound) == ("gloo", "NCCL not found, gloo over the host network used")
    assert chosen(sound, none) == ("gloo", "NCCL not found there, gloo over the host network used")
    assert chosen(sound, sound._replace(torch=False)) == ("2.21.5", "")
    assert chosen(none, sound._replace(torch=False))[0] == "socket"
    assert chosen(sound, sound._replace(gpus=4))[1].startswith("8 GPUs here and 4 there")
    cores = Means(0, "", "", torch=False)
    assert chosen(cores, cores) == ("socket", "")


@pytest.mark.parametrize("said", [b"", b"nonsense\n", b"[" * 2000, b"[1, 2]\n", b'{"gpus": 1}\n'])
def test_a_partner_that_says_nothing_readable_is_no_word_on_the_node(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(NotMeasured, match="does not say what it has"):
            told_each_other(ours, Means(1, "2.21.5", "", torch=False))
