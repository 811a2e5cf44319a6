"""The script of an allocation, and the scripts of commands in it; all run as the job's user.

The allocation's script waits at a FIFO for its exit code, in the directory that the agent makes for
each rank. It passes signals on to the steps; after SIGTERM it stays until they have ended. It needs
`sh`, `cat`, `sleep` and `mkfifo`, so it runs in a container too. No daemon's restart matters to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import join, quote

from dlq_common.text.soft_limits import UNLIMITED

HOLD = """\
umask 077
dir=${DLQ_BEAT_FILE%/*}
mkfifo "$dir/end" || exit 1
cat "$dir/end" > "$dir/code" &
reader=$!
leaving=
forward() {
    left=
    for group in "$dir"/group.*; do
        kill -s "$1" -- "-${group##*.}" 2> /dev/null || continue
        left=1
        if [ "$1" = TERM ] && [ -s "$group" ]; then
            kill -s HUP -- "-${group##*.}" 2> /dev/null # shells ignore SIGTERM
        fi
    done
}
for word in HUP INT QUIT USR1 USR2 CONT; do
    trap "forward $word" "$word"
done
trap 'forward TERM; leaving=1' TERM
while kill -s 0 "$reader" 2> /dev/null; do
    if [ -n "$leaving" ]; then
        forward 0
        [ -n "$left" ] || exit 143
        sleep 0.1
    else
        wait "$reader"
    fi
done
read -r code < "$dir/code"
exit "${code:-1}"
"""
_PLACE = """\
dir=${DLQ_BEAT_FILE%/*}
"""
_STAND_INS = """\
[ -z "$DLQ_SLURM_BIN" ] || PATH=$DLQ_SLURM_BIN:$PATH
"""
_UNTIL_HELD = """\
until [ -p "$dir/end" ]; do sleep 0.005; done
"""
_OWN_STEP = """\
if [ -t 0 ]; then echo shell; fi > "$dir/group.$$"
export SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NODELIST="$SLURM_JOB_NODELIST" \\
    SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_TASK_PID=$$
exec 3>&2 2> /dev/null  # the shell has its own words about signals
trap : HUP INT QUIT TERM USR1 USR2
directory=$1
program=$2
shift 2
if [ -n "$directory" ] && ! [ -d "$directory/." ]; then
    why='Not a directory'
    [ -e "$directory" ] || why='No such file or directory'
    [ ! -d "$directory" ] || why='Permission denied'
    echo "slurmstepd-$SLURMD_NODENAME: error: couldn't chdir to \\`$directory': $why:" \\
        "going to /tmp instead" >&3
fi
if command -v "$program" > /dev/null; then
    /bin/sh -c 'SLURM_TASK_PID=$$ && exec "$@" 2>&3 3>&-' dlq "$@"
    code=$?
else
    echo "slurmstepd: error: execve(): $program: No such file or directory" >&3
    code=2
fi
echo "$code" > "$dir/end"
exit "$code"
"""
_END = """\
echo "$1" > "$dir/end"
"""
_ENVIRONMENT = """\
env -0
"""
_KEEP = """\
umask 077
cat > "$dir/step.$1"
"""
_STEP = """\
[ ! -p "$dir/end" ] || { if [ -t 0 ]; then echo shell; fi; } > "$dir/group.$$"
kept=$dir/step.$1
shift
become() { exec "$@"; }
if [ -e "$kept" ]; then
    . "$kept"
    rm -f "$kept"
fi
"""
_SRUN = """\
if [ -z "$DLQ_SLURM_BIN" ]; then
    until [ "$1" = -- ]; do shift; done
    shift
    become "$@"
fi
become srun "$@"
"""


_OF_STEPS = """\
name=$1
shift
if [ -z "$DLQ_SLURM_BIN" ]; then
    echo "$name: error: this job was not submitted with compat = slurm" >&2
    exit 1
fi
exec "$name" "$@"
"""


def _shell(script: str, *arguments: str) -> list[str]:
    return ["/bin/sh", "-c", _PLACE + script, "dlq", *arguments]


def own_step(words: list[str], environ: Mapping[str, str], directory: str) -> list[str]:
    """Run the words as the one step of an allocation, which ends with it and as it does.

    `environ` is that of the allocation: `sh` loses the functions in it. `directory` is its own; it
    has started in another one where that is missing. Empty: nothing is said of that.
    """
    whole = [*_with_functions(environ), *words]
    return _shell(_UNTIL_HELD + _STAND_INS + _OWN_STEP, directory, words[0], *whole)


def step(key: str, words: list[str]) -> list[str]:
    """A step beside others: `srun WORDS` with the environment that `keep` has left under `key`."""
    return _shell(_STEP + _STAND_INS + _SRUN, key, *words)


def keep(key: str) -> list[str]:
    """Keep stdin for `step`: an environment in the form of `kept`."""
    return _shell(_KEEP, key)


def listener(words: list[str]) -> list[str]:
    """Join a step: `sattach WORDS` of the job's own programs."""
    return _shell(_STAND_INS + _OF_STEPS, "sattach", *words)


def canceller(words: list[str]) -> list[str]:
    """Signal a step or the batch script: `scancel WORDS` of the job's own programs."""
    return _shell(_STAND_INS + _OF_STEPS, "scancel", *words)


def end(code: int) -> list[str]:
    """End the allocation with an exit code."""
    return _shell(_UNTIL_HELD + _END, str(code))


def environment() -> list[str]:
    """Print the environment of the allocation, each variable with a NUL behind it."""
    return _shell(_UNTIL_HELD + _ENVIRONMENT)


_FUNCTION = "BASH_FUNC_"
# The letters that the shells have in common, and the size of one in bytes.
_LETTERS: Mapping[str, tuple[str, int]] = {
    "CORE": ("c", 512), "DATA": ("d", 1024), "FSIZE": ("f", 512), "MEMLOCK": ("l", 1024),
    "RSS": ("m", 1024), "NOFILE": ("n", 1), "STACK": ("s", 1024), "CPU": ("t", 1),
    "AS": ("v", 1024),
}  # fmt: skip
# One above the node's hard limit is that.
_LIMIT = """\
limit() {
    ulimit -S "$1" "$2" 2> /dev/null || ulimit -S "$1" "$(ulimit -H "$1")" 2> /dev/null
}
"""
# The node's own; a step must not get those of the host on which `srun` was called.
_OF_NODE = ("SLURM", "DLQ_", "CUDA_", "MASTER_", "PET_")


def kept(environ: Mapping[str, str], umask: int, limits: Mapping[str, int]) -> bytes:
    """A shell's words that set the caller's umask, soft limits and variables, without the node's
    own variables.
    """
    lines = [_LIMIT, *_limit_lines(limits), f"umask {umask:04o}\n"] + [
        f"export {name}={quote(value)}\n"
        for name, value in environ.items()
        if name.isidentifier() and name.isascii() and not name.startswith(_OF_NODE)
    ]
    if functions := _with_functions(environ):
        lines.append(f'become() {{ exec {join(functions)} "$@"; }}\n')
    return "".join(lines).encode("utf-8", "surrogateescape")


def _limit_lines(limits: Mapping[str, int]) -> list[str]:
    """NPROC is missing: the shells name it by different letters."""
    lines = []
    for name, (letter, unit) in _LETTERS.items():
        if name in limits:
            value = limits[name]
            told = "unlimited" if value == UNLIMITED else str(value // unit)
            lines.append(f"limit -{letter} {told}\n")
    return lines


def _with_functions(environ: Mapping[str, str]) -> list[str]:
    """Words before a command that give it the functions that a bash has exported. Their variables
    have names that `sh` cannot set, and that it drops.
    """
    found = [
        f"{name}={value}"
        for name, value in environ.items()
        if name.startswith(_FUNCTION) and name.endswith("%%")
    ]
    return ["env", *found] if found else []
