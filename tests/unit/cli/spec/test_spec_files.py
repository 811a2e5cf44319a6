"""TOML and YAML specs: the same keys, the line of each mistake, and no surprises of YAML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_cli.spec.fields import ALIASES, LATER_KEYS, READERS, SYNONYMS
from dlq_cli.spec.toml_yaml import LARGEST_SPEC_BYTES, read_spec_file
from dlq_cli.spec.values.given import FromShell
from dlq_common.errors import DlqError, InvalidRequest

TOML = b"""name = "llama-ft"
command = "torchrun train.py --resume"
nodes = 2
time_limit = "1-00:00:00"

[resources]
gpus = "h100-80gb:8"
memory = "400GiB"

[env]
HF_HOME = "/data/hf"

[checkpoint]
dir = "/data/ckpt"
marker = "*/done"

[preempt]
signal = "USR1"
grace = "auto"

[retry]
max_restarts = 5
exit_codes = [99, 85]
"""

YAML = b"""name: llama-ft
command: torchrun train.py --resume
nodes: 2
time_limit: 1-00:00:00
resources:
  gpus: h100-80gb:8
  memory: 400GiB
env:
  HF_HOME: /data/hf
checkpoint:
  dir: /data/ckpt
  marker: "*/done"
preempt:
  signal: USR1
  grace: auto
retry:
  max_restarts: 5
  exit_codes: [99, 85]
"""


def values(content: bytes, name: str) -> dict[str, object]:
    return {key: given.value for key, given in read_spec_file(content, name).items()}


def refusal(content: bytes, name: str = "job.toml") -> str:
    with pytest.raises(InvalidRequest) as caught:
        read_spec_file(content, name)
    return caught.value.what


def outcome(content: bytes, name: str) -> str:
    try:
        read_spec_file(content, name)
    except DlqError as error:
        return error.what
    return "accepted"


def test_toml_and_yaml_say_the_same() -> None:
    assert values(TOML, "job.toml") == values(YAML, "job.yaml")
    assert values(TOML, "job.toml")["command"] == ("torchrun", "train.py", "--resume")


def test_each_value_remembers_its_line() -> None:
    toml, yaml = read_spec_file(TOML, "job.toml"), read_spec_file(YAML, "job.yml")
    assert toml["resources.memory"].origin == "job.toml:8"
    assert yaml["resources.memory"].origin == "job.yml:7"
    assert yaml["env.HF_HOME"].origin == "job.yml:8"


@pytest.mark.parametrize("name", ["job.toml", "job.yaml"])
def test_crlf_and_a_byte_order_mark_change_nothing(name: str) -> None:
    content = TOML if name == "job.toml" else YAML
    assert values(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"), name) == values(content, name)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'name = "a"\ngpu = 3\n', "job.toml:2: unknown key 'gpu'"),
        (
            b"[resources]\ngpsu = 3\n",
            "job.toml:2: unknown key 'resources.gpsu'; did you mean 'resources.gpus'?",
        ),
        (b'\nschedule = "x"\n', "job.toml:2: 'schedule' is not supported by this version of dlq"),
        (b"resources = 8\n", "job.toml:1: resources is a section: write its keys below it"),
        (b'time_limit = "soon"\n', "job.toml:1: time_limit: 'soon' is not a duration"),
        (b"name = 1\nname = 2\n", "job.toml:2: not TOML: Cannot overwrite a value"),
        (b"name = [\n", "job.toml: not TOML:"),
        (b"hold = 3\n", "job.toml:1: hold: '3' is neither true nor false"),
        (b'command = "a | b"\n', "job.toml:1: command: the command is not run by a shell"),
        (b'command = ""\n', "job.toml:1: command: the command is empty"),
        (b"env = {A = true}\n", "job.toml:1: env: the value of 'A' is not text"),
        (b'checkpoint.marker = "../x"\n', "job.toml:1: checkpoint.marker: "),
        (b'name = "a\\nb"\n', "job.toml:1: name: job name 'a\\nb' is not allowed"),
        (b'name = "../b"\n', "job.toml:1: name: job name '../b' is not allowed"),
        (b"\xff\xfe\x00", "job.toml: not text"),
        (b"#" * (LARGEST_SPEC_BYTES + 1), "job.toml: larger than a spec may be"),
    ],
)
def test_a_mistake_in_toml_is_told_with_file_and_line(content: bytes, said: str) -> None:
    assert refusal(content).startswith(said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name: a\nnames: b\n", "job.yaml:2: unknown key 'names'; did you mean 'name'?"),
        (b"name: a\nname: b\n", "job.yaml:2: 'name' stands here twice"),
        (b"a: [b\n", "job.yaml:2: not YAML"),
        (b"- a\n- b\n", "job.yaml: it holds no keys"),
        (b"just text\n", "job.yaml: it holds no keys"),
        (b"[a]: b\n", "job.yaml:1: a key must be a word"),
        (
            b"nodes: 2-4\n",
            "job.yaml:1: nodes: '2-4': write the fewest nodes, and the range of GPUs",
        ),
        (b"a: \x01\n", "job.yaml: not YAML"),
        (b"name:\n", "job.yaml:1: name has no value"),
    ],
)
def test_a_mistake_in_yaml_is_told_with_file_and_line(content: bytes, said: str) -> None:
    assert refusal(content, "job.yaml").startswith(said)


def test_yaml_values_are_the_text_that_was_written() -> None:
    read = values(b"time_limit: 1:30:00\nenv:\n  A: no\n  B: 010\n  C: 1e3\n", "job.yaml")
    assert read == {"time_limit": 5400, "env.A": "no", "env.B": "010", "env.C": "1e3"}


def test_an_anchor_bomb_costs_nothing() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30))
    said = refusal(f"l0: &l0 [x]\n{levels}".encode(), "job.yaml")
    assert said.startswith("job.yaml:1: unknown key 'l0'")


@pytest.mark.parametrize(
    "bomb",
    [
        "a0: &a0 [x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
        + "command: *a11\n",
        f"name: &a {'x' * 400_000}\ncommand: [[{', '.join(['*a'] * 9)}]]\n",
    ],
)
def test_aliases_stand_for_little_more_than_the_file(bomb: str) -> None:
    problems: list[InvalidRequest] = []
    read_spec_file(bomb.encode(), "job.yaml", problems)
    assert "aliases stand for far more" in problems[-1].what
    few = b"env: {A: &a one, B: *a}\ncommand: 'true'\n"
    assert values(few, "job.yaml")["env.B"] == "one"


@pytest.mark.parametrize("key", ["a{}", "env = {{ a{} = 1 }}", '"a b" {}', "[a{}]"])
def test_a_key_of_very_many_parts_costs_nothing(key: str) -> None:
    content = f"{key.format(' . a' * 1_000)} = 1".encode()
    assert "a key has over 64 parts" in refusal(b"\n" + content, "job.toml")
    assert "over 64" not in refusal(b"a" * 200_000 + b" = '" + b"." * 200_000 + b"'", "job.toml")


def test_env_may_be_a_list_that_takes_from_the_shell() -> None:
    read = values(b'env = ["A=1", "WANDB_API_KEY"]\n', "job.toml")
    assert read == {"env.A": "1", "env.WANDB_API_KEY": FromShell.VALUE}


def test_lines_for_a_shell_become_a_script() -> None:
    assert values(b"run: |\n  a && b\n", "j.yaml")["run"] == "#!/bin/sh\na && b\n"
    assert values(b"commands:\n  - a\n  - b\n", "j.yaml")["run"] == "#!/bin/sh\na\nb\n"


@given(st.binary(max_size=300), st.sampled_from(["job.toml", "job.yaml"]))
def test_garbage_is_refused_and_never_a_crash(content: bytes, name: str) -> None:
    assert outcome(content, name).startswith(("accepted", "job."))


KEYS = st.sampled_from(["name", "nodes", "env", "resources", "resources.gpus", "command", "run"])
YAML_VALUES = st.recursive(
    st.text("abc 0189:-.{}[]'\"&*#\n\t$", max_size=12),
    lambda inner: st.lists(inner, max_size=3).map(str),
    max_leaves=4,
)


@given(st.lists(st.tuples(KEYS, YAML_VALUES), max_size=4))
def test_hostile_yaml_is_refused_and_never_a_crash(pairs: list[tuple[str, str]]) -> None:
    text = "".join(f"{key}: {value}\n" for key, value in pairs)
    assert outcome(text.encode(), "job.yaml").startswith(("accepted", "job.yaml"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gpus = 8", "`gpus` under resources (of each node) or `gpus_total` (of the whole job)"),
        ("partition = 'gpu'", "write `queue`"),
        ("job-name = 'x'", "write `name`"),
        ("walltime = '1h'", "write `time_limit`"),
        ("mem = '1GiB'", "write `memory` under resources"),
        ("retries = 3", "write `max_restarts` under retry"),
        ("[resources]\nnum_gpus = 8", "write `gpus` under resources"),
        ("[resources]\nnodes = 2", "write `nodes`"),
    ],
)
def test_the_words_of_other_schedulers_are_answered_with_ours(line: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_spec_file(f"command = 'true'\n{line}\n".encode(), "job.toml")
    assert f"job.toml:{2 + line.count(chr(10))}: unknown key" in caught.value.what
    assert words in caught.value.what


def test_a_word_is_either_known_or_answered() -> None:
    assert not set(SYNONYMS) & {*READERS, *ALIASES, *LATER_KEYS}
