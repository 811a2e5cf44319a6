"""ibverbs: what is posted and what arrives, for programs that link libibverbs and that open it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from dlq_profiler.records.layout import ConnKind, Op, RecordFlag
from dlq_profiler.records.recording import RecordFile
from support.watched_programs import PROGRAMS, Profiling, Ran, calls, compile_program, run

LEGACY = [
    (Op.IB_POST_RECV, 8192, 8192),
    (Op.IB_SEND, 1024, 1024),
    (Op.IB_WRITE, 2000, 2000),
    (Op.IB_SEND, 666, 666),
]
EXTENDED = [(Op.IB_WRITE, 4096, 4096), (Op.IB_SEND, 48, 48), (Op.IB_WRITE, 333, 333)]
ARRIVED = [(Op.IB_RECEIVED, 1024, 1024)]

pytestmark = pytest.mark.skipif(
    not Path("/usr/include/infiniband/verbs.h").exists(), reason="needs libibverbs-dev"
)


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a libibverbs.so.1 of ours."""
    where = tmp_path_factory.mktemp("verbs")
    versions = f"-Wl,--version-script={PROGRAMS / 'stub_ibverbs.map'}"
    flags = ["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", versions]
    compile_program(where, "stub_ibverbs.c", flags=flags, name="libibverbs.so.1")
    return where


@pytest.fixture(params=["linked", "opened"])
def client(request: pytest.FixtureRequest, stub: Path) -> Path:
    linked = [f"-L{stub}", "-l:libibverbs.so.1"]
    flags = linked if request.param == "linked" else ["-DVIA_DLOPEN"]
    return compile_program(stub, "verbs_client.c", flags=flags, name=request.param)


def _profiled(profiling: Profiling, stub: Path, client: Path, times: int = 1) -> RecordFile:
    profiling.environment["LD_LIBRARY_PATH"] = str(stub)
    alone = run(client, str(times), environment={"LD_LIBRARY_PATH": str(stub)})
    assert alone.returncode == 0
    assert profiling.run(client, str(times)) == alone
    return profiling.recording()


def test_what_verbs_abi_restates_is_what_the_header_says(tmp_path: Path) -> None:
    assert run(compile_program(tmp_path, "verbs_abi.c")).returncode == 0


def test_every_request_is_recorded_once(profiling: Profiling, stub: Path, client: Path) -> None:
    recording = _profiled(profiling, stub, client)
    assert calls(recording) == LEGACY + EXTENDED + ARRIVED
    flags = [int(flag) for flag in recording.records["flags"]]
    assert flags == [
        0,
        RecordFlag.IMMEDIATE,
        0,
        RecordFlag.INLINE | RecordFlag.FAILED_POST,
        0,
        RecordFlag.INLINE | RecordFlag.IMMEDIATE,
        0,
        0,
    ]
    assert recording.records["aux"].tolist() == [4, 1, 2, 3, 11, 12, 13, 0]


def test_queue_pairs_are_connections(profiling: Profiling, stub: Path, client: Path) -> None:
    recording = _profiled(profiling, stub, client)
    legacy, extended = recording.conns
    assert legacy["kind"] == extended["kind"] == ConnKind.QUEUE_PAIR
    assert bytes(legacy["name"]) == b"stub0"
    assert (legacy["remote"], extended["remote"]) == (77, 0)
    assert bytes(legacy["remote_address"]) == bytes([0xFE]) + bytes(14) + bytes([9])
    assert recording.records["conn"].tolist() == [1, 1, 1, 1, 2, 2, 2, 1]
    assert legacy["closed_ns"] > legacy["seen_ns"]


def test_bytes_stay_exact_over_many_requests(
    profiling: Profiling, stub: Path, client: Path
) -> None:
    recording = _profiled(profiling, stub, client, times=500)
    assert recording.lost == 0
    sent = recording.records[recording.records["op"] < Op.IB_POST_RECV]
    assert int(sent["bytes"].sum()) == 500 * sum(c[1] for c in LEGACY[1:] + EXTENDED)


def test_no_library_looks_like_no_library(profiling: Profiling, tmp_path: Path) -> None:
    """A program that asks whether NCCL or verbs are loaded hears no, although wrappers are
    there.
    """
    source = tmp_path / "asks.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\n"
        "int main(void)\n{\n"
        "    void *self = dlopen(NULL, RTLD_NOW);\n"
        '    printf("%d ", !dlsym(RTLD_DEFAULT, "ibv_open_device"));\n'
        '    printf("%d ", dlerror() != NULL);\n'
        '    printf("%d ", !dlsym(self, "ncclAllReduce"));\n'
        '    printf("%d ", dlerror() != NULL);\n'
        '    printf("%d\\n", dlsym(RTLD_DEFAULT, "puts") != NULL);\n'
        "    return 0;\n}\n"
    )
    program = compile_program(tmp_path, str(source))
    assert profiling.run(program) == run(program)
    assert run(program).stdout == "1 1 1 1 1\n"


# ---- the real libibverbs, with a provider of ours under it ----


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a provider, clients that link and open libibverbs, and a /sys to find it
    in.
    """
    where = tmp_path_factory.mktemp("real")
    if not _has_provider_interface(34):
        pytest.skip("this libibverbs has another provider interface")
    provider = ["-shared", "-fPIC", "-l:libibverbs.so.1", "-Wno-pedantic"]
    compile_program(where, "stub_provider.c", flags=provider, name="libstub-rdmav34.so")
    compile_program(where, "verbs_client.c", flags=["-l:libibverbs.so.1"], name="linked")
    compile_program(where, "verbs_client.c", flags=["-DVIA_DLOPEN"], name="opened")
    for name, text in {
        "infiniband_verbs/abi_version": "6",
        "infiniband_verbs/uverbs0/ibdev": "stub0",
        "infiniband_verbs/uverbs0/dev": "1:3",
        "infiniband_verbs/uverbs0/abi_version": "1",
        "infiniband/stub0/node_type": "1: CA",
        "infiniband/stub0/node_guid": "0000:0000:0000:0001",
    }.items():
        path = where / "sys" / "class" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return where


def _has_provider_interface(number: int) -> bool:
    try:
        return hasattr(ctypes.CDLL("libibverbs.so.1"), f"verbs_register_driver_{number}")
    except OSError:
        return False


# The device's file is a second /dev/null, in a /dev of its own.
DEVICE = """
touch "$1/null" && mount --bind /dev/null "$1/null" && mount -t tmpfs none /dev &&
mkdir /dev/infiniband && touch /dev/null /dev/infiniband/uverbs0 &&
mount --bind "$1/null" /dev/null && mount --bind "$1/null" /dev/infiniband/uverbs0 || exit 77
shift; exec env $VARIABLES "$@"
"""


@pytest.mark.parametrize("how", ["linked", "opened"])
def test_the_real_libibverbs(profiling: Profiling, real: Path, tmp_path: Path, how: str) -> None:
    fake = {"RDMAV_DRIVERS": str(real / "libstub"), "SYSFS_PATH": str(real / "sys")}
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    argv = [*namespace, "sh", "-c", DEVICE, "sh", str(tmp_path), str(real / how)]

    def in_namespace(variables: dict[str, str]) -> Ran:
        given = " ".join(f"{key}={value}" for key, value in variables.items())
        return run(*argv, environment={"VARIABLES": given})

    alone = in_namespace(fake)
    if alone.returncode == 77 or "unshare" in alone.stderr:
        pytest.skip("no mount namespace here")
    assert alone.returncode == 0, (alone.returncode, alone.stderr)
    assert alone.stdout.startswith("device stub0\n")
    assert in_namespace({**fake, **profiling.variables()}) == alone
    assert calls(profiling.recording()) == LEGACY + EXTENDED + ARRIVED
