"""`sbcast SOURCE DEST`: copies a file to every node of a job, by a step of its own.

Inside a job `srun` needs no identity and asks no daemon, so neither does this. Each node writes a
draft beside DEST and renames it: a copy that is cut off leaves the old file. The agent and the
master have no part in it: neither their restarts nor their silence matter.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from typing import Dict, List, NamedTuple, Optional, Tuple

from dlq_compat import delegate

USAGE = "Usage: sbcast [--exclude] [-CfFjpvV] [--send-libs] SOURCE DEST"
_HELP = """\
Usage: sbcast [OPTIONS] SOURCE DEST
  -f, --force           replace destination file as required
  -j, --jobid=#         specify job ID
  -p, --preserve        preserve modes and times of source file
  -v, --verbose         provide detailed event logging
  -V, --version         print version information and exit

  Without effect: -C, --compress[=lib], --exclude=<path_list>, -F, --fanout=num,
  -s, --size=num, -t, --timeout=secs"""
_TRY = 'Try "sbcast --help" for more information'
_NO_JOB = (
    "Need a job id to run this command.  Run from within a Slurm job or use the --jobid option."
)
_UNREADABLE = 255
# Long options: their letter, and whether they take a value (`?`: behind `=` alone).
_LONG: Dict[str, Tuple[str, str]] = {
    "compress": ("C", "?"), "exclude": ("", "y"), "fanout": ("F", "y"), "force": ("f", ""),
    "jobid": ("j", "y"), "preserve": ("p", ""), "send-libs": ("", "?"), "size": ("s", "y"),
    "timeout": ("t", "y"), "verbose": ("v", ""), "help": ("", ""), "usage": ("", ""),
}  # fmt: skip
_BY_LETTER = {letter: name for name, (letter, _) in _LONG.items() if letter}
_VARIABLES = {
    "SBCAST_FORCE": "force",
    "SBCAST_PRESERVE": "preserve",
    "SBCAST_SEND_LIBS": "send-libs",
}
# The part of each node; its codes are those of errno, as in Slurm. It uses mktemp because in /tmp
# somebody else may have laid a link under any name that can be guessed.
_RECEIVE = """\
dest=$1 mode=$2 bytes=$3 force=$4 times=$5
fail() { echo "sbcast: error: REQUEST_FILE_BCAST(${SLURMD_NODENAME:-node}): $2" >&2; exit "$1"; }
[ -n "$force" ] || { [ ! -e "$dest" ] && [ ! -L "$dest" ]; } || fail 17 'File exists'
[ ! -d "$dest" ] || fail 21 'Is a directory'
[ -d "${dest%/*}/" ] || fail 2 'No such file or directory'
umask 077
draft=$(mktemp "$dest.XXXXXX" 2> /dev/null) || fail 13 'Permission denied'
trap 'rm -f "$draft"' EXIT
cat > "$draft" || fail 5 'the file could not be written'
[ "$(wc -c < "$draft")" -eq "$bytes" ] || fail 5 'the copy is not whole'
chmod "$mode" "$draft" || fail 5 'its mode could not be set'
[ -z "$times" ] || touch -m -d "@$times" "$draft" || fail 5 'its time could not be set'
mv -f "$draft" "$dest" || fail 5 'the file could not be replaced'
trap - EXIT
"""


class CopyWish(NamedTuple):
    """A call in words."""

    options: Dict[str, str]
    files: List[str]


class WrongCopyWord(Exception):
    """A word that getopt would refuse; its text says it."""


def main(arguments: List[str]) -> int:
    """The exit code: 0 once every node has the file, else words on stderr as Slurm's."""
    try:
        wish = read(arguments)
    except WrongCopyWord as error:
        print("sbcast: %s\n%s" % (error, _TRY), file=sys.stderr)
        return 1
    if "help" in wish.options or "usage" in wish.options:
        print(_HELP if "help" in wish.options else USAGE)
        return 0
    if len(wish.files) != 2:
        print("Need two file names, have %d names\n%s" % (len(wish.files), _TRY), file=sys.stderr)
        return 1
    options = dict.fromkeys((_VARIABLES[name] for name in _VARIABLES if name in os.environ), "")
    options.update(wish.options)
    job = options.get("jobid") or os.environ.get("SLURM_JOB_ID", "")
    source, dest = wish.files
    fault = _fault(options, job, dest)
    if fault:
        return _fail(fault)
    return _send(source, os.path.join(os.getcwd(), dest), job, options)


def read(arguments: List[str]) -> CopyWish:
    """Options and files in any order, as getopt reads them. WrongCopyWord for an unknown one."""
    options: Dict[str, str] = {}
    files: List[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            return CopyWish(options, files + left)
        if not word.startswith("-") or word == "-":
            files.append(word)
        elif word.startswith("--"):
            _read_long(word, left, options)
        else:
            _read_letters(word[1:], left, options)
    return CopyWish(options, files)


def _read_long(word: str, left: List[str], options: Dict[str, str]) -> None:
    written, equals, value = word[2:].partition("=")
    begun = [written] if written in _LONG else [name for name in _LONG if name.startswith(written)]
    if len(begun) != 1:
        raise WrongCopyWord("unrecognized option '%s'" % word[:64])
    takes = _LONG[begun[0]][1]
    if takes == "y" and not equals:
        if not left:
            raise WrongCopyWord("option '%s' requires an argument" % word[:64])
        value = left.pop(0)
    options[begun[0]] = value


def _read_letters(letters: str, left: List[str], options: Dict[str, str]) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        name = _BY_LETTER.get(letter)
        if name is None:
            raise WrongCopyWord("invalid option -- '%s'" % letter)
        takes = _LONG[name][1]
        options[name] = letters if takes else ""
        if takes == "y" and not letters:
            if not left:
                raise WrongCopyWord("option requires an argument -- '%s'" % letter)
            options[name] = left.pop(0)
        if takes:
            return


def _fault(options: Dict[str, str], job: str, dest: str) -> Optional[str]:
    """The fault of a call that cannot be done; None: there is none."""
    if not job:
        return _NO_JOB
    if "." in job or "+" in job:
        return "--jobid: name a job: the file goes to all of its nodes"
    if options.get("send-libs", "no") in ("", "yes"):
        return "--send-libs: copy the libraries by a call for each"
    if dest.endswith("/"):
        return "Target filename cannot be a directory."
    return None


def _send(source: str, dest: str, job: str, options: Dict[str, str]) -> int:
    try:
        file = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        facts = os.fstat(file)
    except OSError as error:
        print("sbcast: error: Can't open `%s`: %s" % (source, error.strerror), file=sys.stderr)
        return _UNREADABLE
    if not stat.S_ISREG(facts.st_mode):
        print("sbcast: error: `%s` is no plain file" % source, file=sys.stderr)
        return _UNREADABLE
    if not facts.st_size:
        print("sbcast: error: Warning: file `%s` is empty." % source, file=sys.stderr)
    times = str(int(facts.st_mtime)) if "preserve" in options else ""
    force = "force" if "force" in options else ""
    mode = "%o" % (facts.st_mode & 0o777)
    step = [
        "--jobid=%s" % job,
        "--overlap",
        "--ntasks-per-node=1",
        "--chdir=/",
        "--input=all",
        "-Q",
    ]
    receive = ["/bin/sh", "-c", _RECEIVE, "sbcast", dest, mode, str(facts.st_size), force, times]
    for name in list(os.environ):
        if name.startswith("SLURM_") and name != "SLURM_JOB_ID":
            del os.environ[name]  # it would shape the step
    os.dup2(file, 0)
    return _become_srun([*step, *receive])


def _become_srun(words: List[str]) -> int:
    """Returns only where `dlq` is imported here, or there is no `srun`."""
    if delegate.dlq_here is not None:
        return delegate.run("srun", words)
    beside = os.path.join(os.environ.get("DLQ_SLURM_BIN", ""), "srun")
    program = beside if os.access(beside, os.X_OK) else shutil.which("srun")
    if program is not None:
        os.execv(program, ["srun", *words])
    return _fail("there is no `srun` here")


def _fail(words: str) -> int:
    print("sbcast: error: %s" % words, file=sys.stderr)
    return 1
