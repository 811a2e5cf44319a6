"""Scripts: which lines are read, what they mean, and what is refused by name and line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_cli.spec.script import LARGEST_SCRIPT_BYTES, read_script
from dlq_cli.spec.slurm.sbatch import LONGEST_DIRECTIVES
from dlq_cli.spec.toml_yaml import read_spec_file
from dlq_cli.spec.values.given import MOST_PROBLEMS
from dlq_common.errors import DlqError, InvalidRequest

SHEBANG = "#!/bin/bash\n"


def values(text: str) -> dict[str, object]:
    layer = read_script(text.encode(), "train.sh").layer
    return {key: given.value for key, given in layer.items() if key != "run"}


def refusal(content: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read_script(content, "train.sh")
    return f"{caught.value}"


def outcome(content: bytes) -> str:
    try:
        read_script(content, "train.sh")
    except DlqError as error:
        return error.what
    return "accepted"


def test_flags_are_read_in_every_form_slurm_users_type() -> None:
    text = SHEBANG + '#DLQ --gpus=8 -t 1-00:00:00\n#DLQ -Jtrain --env "A=b c"  # a comment\n'
    assert values(text) == {
        "resources.gpus_total": 8,
        "time_limit": 86400,
        "name": "train",
        "env.A": "b c",
    }


def test_a_bare_number_is_minutes_and_units_are_units() -> None:
    assert values(SHEBANG + "#DLQ -t 90\n")["time_limit"] == 5400
    assert values(SHEBANG + "#DLQ -t 90m\n")["time_limit"] == 5400


def test_every_value_remembers_its_line() -> None:
    layer = read_script((SHEBANG + "\n#DLQ --mem 4G\n").encode(), "train.sh").layer
    assert layer["resources.memory"].origin == "train.sh:3"


def test_directives_after_the_first_command_are_not_read_but_noted() -> None:
    script = read_script((SHEBANG + "echo hi\n#DLQ --gpus 8\n").encode(), "train.sh")
    assert "resources.gpus_total" not in script.layer
    assert script.notes == ["train.sh:3: a #DLQ line after the first command is not read"]


def test_an_indented_comment_is_no_command() -> None:
    layer = read_script((SHEBANG + "\n  # a comment\n\t\n#DLQ -N 2\n").encode(), "t.sh").layer
    assert layer["nodes"].value == 2


def test_slurm_directives_are_never_ignored_silently() -> None:
    script = read_script((SHEBANG + "#SBATCH -N 2\n#SBATCH -t 5\n").encode(), "train.sh")
    assert script.notes == ["train.sh: 2 #SBATCH lines are not read; write them as #DLQ"]


def test_an_unknown_flag_names_its_line_and_the_nearest_known_one() -> None:
    assert refusal(b"#!/bin/sh\n#DLQ --gpsu=8\n") == (
        "train.sh:2: unknown key '--gpsu'; did you mean '--gpus'?"
    )


def test_a_flag_of_a_later_version_is_refused_by_name() -> None:
    assert refusal(b"#!/bin/sh\n#DLQ --qos high\n") == (
        "train.sh:2: '--qos' is not supported by this version of dlq"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--gpus", "--gpus needs a value"),
        ("--hold=yes", "--hold takes no value"),
        ("gpus=8", "'gpus=8' is not a flag"),
        ("--gpus 'eight", "quotes do not match"),
        ("--gpus eight", "is not a number of GPUs"),
        ("-t 1:2:3:4", "is not a duration"),
        ("-t 1-", "is not a duration"),
        ("-N 1-4", "write the fewest nodes, and the range of GPUs"),
        ("--mem 400", "is not a size"),
        ("--signal HUP", "is not a signal to save on"),
        ("-J ../b", "is not allowed"),
        ("--env DLQ_JOB_ID=1", "dlq sets DLQ_* and PET_* itself"),
        ("--requeue-exit 0", "exit code 0 means finished"),
    ],
)
def test_a_malformed_flag_is_refused_with_its_line(line: str, words: str) -> None:
    said = refusal(f"#!/bin/sh\n#DLQ {line}\n".encode())
    assert said.startswith("train.sh:2: ")
    assert words in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b" \n \n", "it is empty"),
        (b"\x7fELF\x02\x01\xff\xfe", "not text (byte 6 is not UTF-8)"),
        (b"#!/bin/sh\necho \0\n", "it holds a NUL byte"),
        (b"#!/bin/bash\r\necho hi\r\n", "DOS line ends"),
        (b"#!/bin/sh\r", "DOS line ends"),
        (b"echo hi\n", "the first line must name the interpreter"),
        (b"#!/bin/sh\n" + b"x" * LARGEST_SCRIPT_BYTES, "larger than a script may be"),
    ],
)
def test_what_no_interpreter_could_run_is_refused(content: bytes, words: str) -> None:
    assert words in refusal(content)


@pytest.mark.parametrize("line", ["#DLQ --env A=", "#DLQ --compat slurm\n#SBATCH --comment "])
def test_directives_have_a_length_as_a_server_reads_them_too(line: str) -> None:
    """Quotes are taken apart in a time by the square of a word's length."""
    fits = LONGEST_DIRECTIVES - 2 * len(line)
    assert outcome(f"{SHEBANG}{line}{'x' * fits}\n".encode()).count("longer than 65536") == 0
    for text in (f"{line}{'x' * 4_000_000}\n", f"{line}x\n" * LONGEST_DIRECTIVES):
        assert "directives are longer than 65536" in refusal(f"{SHEBANG}{text}".encode())


def test_a_byte_order_mark_is_taken_off_because_the_kernel_would_trip_over_it() -> None:
    script = read_script(b"\xef\xbb\xbf#!/bin/sh\n", "train.sh")
    assert script.layer["run"].value == "#!/bin/sh\n"


@given(st.binary(max_size=400))
def test_garbage_is_refused_and_never_a_crash(content: bytes) -> None:
    assert outcome(content).startswith(("accepted", "train.sh"))


@given(st.text(max_size=200))
def test_a_hostile_directive_is_refused_and_never_a_crash(line: str) -> None:
    script = f"{SHEBANG}#DLQ {line}\n".encode("utf-8", "replace")
    assert outcome(script).startswith(("accepted", "train.sh"))


def test_of_a_text_full_of_mistakes_the_first_hundred_are_told() -> None:
    """A near word is sought for each of them: 33,000 kept a web server busy for 12 s."""
    for content, name in (("#DLQ --tiem=3\n" * 300, "x.sh"), ("{}", "x.yaml")):
        problems: list[InvalidRequest] = []
        if name == "x.sh":
            read_script((SHEBANG + content).encode(), name, problems)
        else:
            keys = "".join(f"k{number}: 1\n" for number in range(300))
            read_spec_file(keys.encode(), name, problems)
        assert len(problems) == MOST_PROBLEMS
