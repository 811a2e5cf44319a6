"""`sbcast` inside a job of two nodes: every node writes the file, or says why not."""

from __future__ import annotations

import pytest

from dlq_compat import sbcast
from unit.compat.conftest import TwoNodes

# Both nodes of the test are this host, so a program of theirs tells which of them has written.
MV = '#!/bin/sh\necho "$SLURMD_NODENAME" >> wrote\nexec /bin/mv "$@"\n'


def prepared(job: TwoNodes) -> str:
    """The beginning of a script: the file, and the place in PATH of the program that tells."""
    (job.directory / "bin").mkdir()
    program = job.directory / "bin" / "mv"
    program.write_text(MV.replace("wrote", str(job.directory / "wrote")))
    program.chmod(0o755)
    source = job.directory / "source"
    source.write_bytes(bytes(range(256)) * 4096)
    source.chmod(0o750)
    return f"PATH=$PATH; export PATH={job.directory}/bin:$PATH; "


def test_every_node_gets_the_whole_file_with_its_mode(job: TwoNodes) -> None:
    (job.directory / "there").mkdir()
    script = prepared(job) + "sbcast -f source there/copy; echo $?"
    assert job.run(script) == (0, "0\n")
    copy = job.directory / "there" / "copy"
    assert copy.read_bytes() == (job.directory / "source").read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o750
    assert sorted((job.directory / "wrote").read_text().split()) == ["gpu-a", "gpu-b"]
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def test_a_file_that_is_there_stays_without_force(job: TwoNodes) -> None:
    (job.directory / "copy").write_text("old")
    code, output = job.run(prepared(job) + "sbcast source copy; echo code $?")
    assert (code, output.splitlines()[-1]) == (0, "code 17")
    assert "sbcast: error: REQUEST_FILE_BCAST(gpu-a): File exists" in output
    assert (job.directory / "copy").read_text() == "old"


def test_a_link_that_somebody_has_laid_is_replaced_and_not_followed(job: TwoNodes) -> None:
    (job.directory / "victim").write_text("mine")
    (job.directory / "copy").symlink_to("victim")
    code, output = job.run(prepared(job) + "sbcast --force source copy; echo code $?")
    assert (code, output) == (0, "code 0\n")
    assert (job.directory / "victim").read_text() == "mine"
    assert not (job.directory / "copy").is_symlink()


def test_times_are_kept_with_preserve(job: TwoNodes) -> None:
    script = "touch -d @1000000000 source; sbcast -fp source copy; stat -c %Y copy"
    assert job.run(prepared(job) + script) == (0, "1000000000\n")


@pytest.mark.parametrize(
    ("words", "code", "first"),
    [
        ([], 1, "Need two file names, have 0 names"),
        (["a"], 1, "Need two file names, have 1 names"),
        (["--bogus", "a", "b"], 1, "sbcast: unrecognized option '--bogus'"),
        (["-y", "a", "b"], 1, "sbcast: invalid option -- 'y'"),
        (["a", "b", "-j"], 1, "sbcast: option requires an argument -- 'j'"),
        (["a", "b"], 1, f"sbcast: error: {sbcast._NO_JOB}"),
        (["-j1", "no", "b"], 255, "sbcast: error: Can't open `no`: No such file or directory"),
        (["-j1", "a", "/tmp/"], 1, "sbcast: error: Target filename cannot be a directory."),
        (["-j1", "--send-libs", "a", "b"], 1, "sbcast: error: --send-libs: copy the libraries by a call for each"),  # noqa: E501
    ],
)  # fmt: skip
def test_words_that_are_wrong_are_told_as_slurm_tells_them(
    words: list[str],
    code: int,
    first: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert sbcast.main(words) == code
    assert capsys.readouterr().err.splitlines()[0] == first
