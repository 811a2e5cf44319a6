"""The options on the #SBATCH lines of a script, by their long names and with their lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlq_cli.output.said import SlurmSays, unknown_option
from dlq_cli.spec.values.given import wrong
from dlq_common.errors import InvalidRequest
from dlq_common.text.suggest import did_you_mean

PREFIX = "#SBATCH"

# Slurm's short options; the switches, which take no value, are in SWITCHES by their long names.
SHORT = {
    "-A": "--account", "-a": "--array", "-B": "--extra-node-info", "-b": "--begin",
    "-C": "--constraint", "-c": "--cpus-per-task", "-D": "--chdir", "-d": "--dependency",
    "-e": "--error", "-F": "--nodefile", "-G": "--gpus", "-H": "--hold", "-i": "--input",
    "-J": "--job-name", "-k": "--no-kill", "-L": "--licenses", "-M": "--clusters", "-m":
    "--distribution", "-N": "--nodes", "-n": "--ntasks", "-O": "--overcommit", "-o": "--output",
    "-p": "--partition", "-Q": "--quiet", "-q": "--qos", "-S": "--core-spec", "-s":
    "--oversubscribe", "-t": "--time", "-v": "--verbose", "-W": "--wait", "-w": "--nodelist",
    "-x": "--exclude",
}  # fmt: skip

# They take no value, or one only behind `=`.
SWITCHES = frozenset(
    {
        "--consolidate-segments", "--container-mount-home", "--container-remap-root",
        "--container-writable", "--contiguous", "--exclusive", "--get-user-env", "--hold",
        "--ignore-pbs", "--nice", "--no-container-entrypoint", "--no-container-mount-home",
        "--lenient", "--bell", "--no-bell", "--no-container-remap-root", "--spread-segments", "--no-kill", "--no-requeue", "--overcommit",  # noqa: E501
        "--oversubscribe", "--parsable", "--propagate", "--quiet", "--reboot", "--requeue",
        "--spread-job", "--stepmgr", "--test-only", "--use-min-nodes", "--verbose", "--wait",
    }
)  # fmt: skip

# They take a value, as do all options with a short letter that are no switch.
VALUED = frozenset(
    {
        "--accel-bind", "--acctg-freq", "--batch", "--bb", "--bbf", "--cluster-constraint",
        "--comment", "--container", "--container-entrypoint", "--container-env", "--container-id",
        "--container-image", "--container-mounts", "--container-save", "--extra",
        "--kill-on-invalid-dep", "--oom-kill-step",
        "--container-name", "--container-workdir", "--cores-per-socket", "--cpu-bind", "--cpu-freq",
        "--cpus-per-gpu", "--deadline", "--delay-boot", "--export", "--export-file", "--gid",
        "--gpu-bind", "--gpu-freq", "--gpus-per-node", "--gpus-per-socket", "--gpus-per-task",
        "--gres", "--gres-flags", "--hint", "--mail-type", "--mail-user", "--mcs-label", "--mem",
        "--mem-bind", "--mem-per-cpu", "--mem-per-gpu", "--mincpus", "--network", "--ntasks-per-core",  # noqa: E501
        "--ntasks-per-gpu", "--ntasks-per-node", "--ntasks-per-socket", "--open-mode", "--power",
        "--prefer", "--priority", "--profile", "--reservation", "--resv-ports", "--segment",
        "--signal", "--sockets-per-node", "--switches", "--thread-spec", "--threads-per-core",
        "--time-min", "--tmp", "--tres-bind", "--tres-per-task", "--uid", "--wait-all-nodes",
        "--wckey", "--wrap",
    }
)  # fmt: skip
KNOWN = frozenset(SHORT.values()) | SWITCHES | VALUED

# `#SBATCH hetjob`: the lines below it belong to another part of the job.
HETJOB = frozenset({"hetjob", "packjob"})


ANOTHER_PART = "`:` begins another part of the job; a job here has one part"
PARTS_HINT = "parts that start and end together: dlq submit --group"

LONGEST_DIRECTIVES = 64 * 1024
"""Characters of all directives of a script: shlex takes time by the square of a word's length."""

_MISREAD = 255  # the exit code of Slurm's programs for words that they cannot read


class InvalidDirective(InvalidRequest):
    """A word on an #SBATCH line that is no option."""

    def __init__(self, origin: str, word: str) -> None:
        super().__init__(f"{origin}: {word[:64]!r} is not an option of sbatch")
        self.word = word

    def in_slurms_words(self) -> SlurmSays:
        """As sbatch tells it."""
        what = f"sbatch: error: Invalid directive found in batch script: {self.word[:64]}"
        return SlurmSays(what, f"  {self.what}", code=_MISREAD)


class Option(NamedTuple):
    """One option as it was written."""

    name: str  # long
    value: str  # empty: none
    line: int
    written: str


def read_options(text: str, source: str) -> Iterator[Option]:
    """The options in the order written. Like Slurm it reads up to the first command.

    InvalidRequest names the line that is no option, or that lacks a value.
    """
    length = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if is_command(line):
            return
        if is_directive(line):
            length = longer(length, line, f"{source}:{number}")
            yield from _options(line.removeprefix(PREFIX), number, f"{source}:{number}")


def longer(length: int, line: str, origin: str) -> int:
    """The length of the directives with this line. InvalidRequest where they are too long."""
    if length + len(line) > LONGEST_DIRECTIVES:
        raise wrong(origin, f"its directives are longer than {LONGEST_DIRECTIVES} characters")
    return length + len(line)


def read_words(words: Sequence[str], origin: str) -> tuple[list[Option], list[str]]:
    """The options of sbatch's own command line, on line 0, and the words behind them.

    InvalidRequest as `read_options`.
    """
    left = list(words)
    found: list[Option] = []
    while left:
        word = left.pop(0)
        if word == "--":
            break
        if word == ":":
            raise wrong(origin, ANOTHER_PART, hint=PARTS_HINT)
        if not word.startswith("-") or word == "-":
            return found, [word, *left]
        option = _option(word, left, 0, origin)
        if option.name not in KNOWN:
            raise _unknown(origin, option)
        found.append(option)
    return found, left


def _unknown(origin: str, option: Option) -> SlurmSays:
    """An unknown option in getopt's words, and what may have been meant."""
    first, *rest = unknown_option(origin, option.written.split(" ")[0][:64]).lines
    near = did_you_mean(option.name, KNOWN).lstrip("; ")
    return SlurmSays(first, *rest, *([f"  {near}"] if near else []), code=_MISREAD)


def is_command(line: str) -> bool:
    """Whether directives end here: neither blank nor a comment, which may be indented (as in
    Slurm).
    """
    text = line.lstrip()
    return bool(text) and not text.startswith("#")


def is_directive(line: str) -> bool:
    """Whether this is an #SBATCH line. As in Slurm no blank need follow."""
    return line.startswith(PREFIX)


def _options(text: str, number: int, origin: str) -> Iterator[Option]:
    left = list(_words(text, origin))
    while left:
        word = left.pop(0)
        if word in HETJOB:
            yield Option(word, "", number, word)
        elif not word.startswith("-"):
            raise InvalidDirective(origin, word)
        else:
            yield _option(word, left, number, origin)


def _option(word: str, left: list[str], number: int, origin: str) -> Option:
    """Takes its value off `left`. The next word tells whether an unknown option has a value."""
    name, value, written = _split(word, origin)
    if value and name in SWITCHES and not word.startswith("--"):  # -HQ, -Hn4
        left.insert(0, f"-{value}")
        value, written = None, word[:2]
    takes = name not in SWITCHES if name in KNOWN else bool(left) and not left[0].startswith("-")
    if value is None and takes:
        if not left:
            raise wrong(origin, f"{name} needs a value")
        value = left.pop(0)
        written += f" {value}"
    return Option(name, value or "", number, written)


def _words(text: str, origin: str) -> Iterator[str]:
    """Words as Slurm has them: a backslash takes the meaning of the next letter. Before a blank,
    and at the end of the line, it is dropped. A word that begins with `#` is a comment. Slurm ends
    at a `#` within a word, too; here it is a letter, as in `nvcr.io#nvidia/pytorch`.
    """
    letters: list[str] = []
    begun, quote, at = False, "", 0
    while at < len(text):
        char, after = text[at], text[at + 1 : at + 2]
        at += 1
        if char == "\\":
            if after and (quote or not after.isspace()):
                letters.append(after)
                begun, at = True, at + 1
        elif char == quote or (not quote and char in "\"'"):
            begun, quote = True, "" if quote else char
        elif quote or not (char.isspace() or (char == "#" and not begun)):
            letters.append(char)
            begun = True
        else:
            if begun:
                yield "".join(letters)
            begun = False
            letters.clear()
            if char == "#":
                return
    if quote:
        raise wrong(origin, f"quotes do not match: there is no closing {quote}")
    if begun:
        yield "".join(letters)


def _split(word: str, origin: str) -> tuple[str, str | None, str]:
    if word.startswith("--") and len(word) > 2:
        name, equals, value = word.partition("=")
        return _respelled(name), value if equals else None, word
    if word.startswith("-") and word[1:2].isalpha():
        rest = word[2:].removeprefix("=")
        return SHORT.get(word[:2], word[:2]), rest or None, word
    raise wrong(origin, f"{word[:64]!r} is not an option of sbatch")


def _respelled(name: str) -> str:
    """Slurm's other words for the same; as getopt, a beginning will do where only one begins so."""
    name = _OTHER_WORDS.get(name, name)
    begun = [] if name in KNOWN else [known for known in KNOWN if known.startswith(name)]
    return begun[0] if len(begun) == 1 else name


_OTHER_WORDS = {
    "--tasks": "--ntasks", "--tasks-per-node": "--ntasks-per-node", "--workdir": "--chdir",
    "--share": "--oversubscribe", "--cpu_bind": "--cpu-bind", "--mem_bind": "--mem-bind",
}  # fmt: skip
