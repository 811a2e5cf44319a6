"""A fake of Slurm's commands, for the provider's contract: jobs are files, and never run. The real
ones: `make slurm`.

It takes only the options that are known to mean here what they mean to Slurm (sbatch, squeue,
scancel of 23.11); any other is an error, so that the provider cannot come to rely on what a fake
would forgive.
"""

from __future__ import annotations

import stat
from pathlib import Path

_PROGRAMS = {
    # Prints the number of the job; its file holds its name, and `script` beside it what would run.
    "sbatch": """\
name=sbatch parsable=
for word; do case $word in
  --parsable) parsable=1 ;;
  --job-name=*) name=${word#*=} ;;
  --no-requeue | --signal=B:USR1@* | --partition=* | --gres=*) ;;
  *) echo "sbatch: unrecognized option '$word'" >&2; exit 1 ;;
esac; done
number=$(($(cat "$root/last" 2>/dev/null || echo 100) + 1))
echo $number > "$root/last"
cat > "$root/script"
head -n 1 "$root/script" | grep -q '^#!' || { echo "sbatch: error: This does not look like a batch script" >&2; exit 1; }
printf %s "$name" > "$root/jobs/$number"
[ ! -e "$root/fail-half-way" ] || { rm "$root/fail-half-way"; echo "sbatch: error: Socket timed out" >&2; exit 1; }
if [ $parsable ]; then echo $number; else echo "Submitted batch job $number"; fi
""",  # noqa: E501
    "squeue": """\
for word; do case $word in
  --noheader | --me | --states=* | "--format=%i|%j") ;;
  *) echo "squeue: unrecognized option '$word'" >&2; exit 1 ;;
esac; done
for job in "$root"/jobs/*; do
  [ -e "$job" ] && printf '%s|%s\\n' "$(basename "$job")" "$(cat "$job")"
done
exit 0
""",
    # A job that saves stays, as one that completes, until `settle`.
    "scancel": """\
case $# in 1) ;; *) echo "scancel: error: too many words" >&2; exit 1 ;; esac
case $1 in --name=*) ;; *) echo "scancel: unrecognized option '$1'" >&2; exit 1 ;; esac
for job in "$root"/jobs/*; do
  [ -e "$job" ] && [ "$(cat "$job")" = "${1#*=}" ] && [ ! -e "$root/saving" ] && rm "$job"
done
exit 0
""",
}


class FakeSlurm:
    """Its programs lie in `bin`. Knobs: `fail_half_way`, `saving`."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin = root, root / "bin"
        (root / "jobs").mkdir(parents=True)
        self.bin.mkdir()
        for name, text in _PROGRAMS.items():
            path = self.bin / name
            path.write_text(f"#!/bin/sh\nroot={root}\n{text}")
            path.chmod(stat.S_IRWXU)

    def fail_half_way(self) -> None:
        """The next job is in the queue, and sbatch says that it failed."""
        (self.root / "fail-half-way").touch()

    def saving(self, *, still: bool) -> None:
        """Jobs that are cancelled complete, for as long as this is so."""
        (self.root / "saving").touch() if still else (self.root / "saving").unlink()

    @property
    def queue(self) -> list[str]:
        """Names of the jobs that there are."""
        return sorted(path.read_text() for path in (self.root / "jobs").iterdir())

    @property
    def script(self) -> str:
        """What the last job would run."""
        return (self.root / "script").read_text()
