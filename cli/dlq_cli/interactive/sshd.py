"""An sshd of one session inside a job, and the options with which OpenSSH reaches it.

Nothing listens: `sshd -i` has our line as its stdin and stdout. Its keys are made for the session.
The line itself is mutual TLS, so the host key need not be known before.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from dlq_cli.app import App
from dlq_cli.interactive.command import captured
from dlq_client.inside.command import CommandInside
from dlq_common.errors import IllegalTransition, Unavailable

HOST_PREFIX = "dlq-"
_FIND = 'PATH="$PATH:/usr/sbin:/usr/local/sbin:/sbin"; command -v sshd && command -v ssh-keygen'
# A job of root's has not the right to enter another root, which sshd needs there.
_MAY = '[ "$(id -u)" != 0 ] || chroot / true'
# sshd gives a terminal to the group of terminals, and ends the session where it may not. Terminals
# that are mounted as usual have that group from the start; those of many containers have not.
_TERMINALS = (
    "g=$(getent group tty | cut -d: -f3);"
    ' [ "$(id -u)" = 0 ] || [ -z "$g" ] || id -G | grep -qw "$g"'
    ' || grep -q " /dev/pts devpts .*[, ]gid=$g[, ]" /proc/mounts'
)
_ASK = (
    f"if ({_FIND} && {{ {_MAY}; }}) >/dev/null 2>&1;"
    f" then {{ {_TERMINALS}; }} && echo yes || echo pipes; else echo no; fi; id -un"
)
# $1: the public key. The session has the job's variables. Its own connections go to loopback only,
# and it opens no port; with PermitOpen, sshd connects to no Unix socket. The files go when the
# session ends, or after 30 s: sshd has read them then.
_SERVE = """\
PATH="$PATH:/usr/sbin:/usr/local/sbin:/sbin"
sshd=$(command -v sshd) && command -v ssh-keygen >/dev/null || {
  echo "dlq: no sshd is installed where this job runs; dlq shell needs none" >&2
  exit 127
}
{ @MAY@; } >/dev/null 2>&1 || {
  echo "dlq: sshd cannot run in a job of root's; dlq shell needs none" >&2
  exit 126
}
{ @TERMINALS@; } && terminals=yes || terminals=no
umask 077
at=$(mktemp -d "${TMPDIR:-/tmp}/dlq-ssh.XXXXXX") || exit 126
trap 'rm -rf "$at"' EXIT
trap 'exit 143' HUP INT TERM
printf '%s\\n' "$1" >"$at/keys"
ssh-keygen -q -t ed25519 -N '' -f "$at/host" || exit 126
[ "$(id -u)" != 0 ] || mkdir -p -m 755 /run/sshd
cat >"$at/config" <<END
HostKey $at/host
AuthorizedKeysFile $at/keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowTcpForwarding local
PermitOpen 127.0.0.1:* localhost:* [::1]:*
AllowStreamLocalForwarding no
PermitTTY $terminals
X11Forwarding no
PrintMotd no
LogLevel ERROR
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
END
{
  printf 'SetEnv'
  env | grep -Ev '^(HOME|USER|LOGNAME|MAIL|SHELL|TERM|PWD|OLDPWD|SHLVL|_|SSH_[A-Z_]*)=' |
    sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*=[^"\\\\]*\\)$/"\\1"/p' | tr '\\n' ' ' | sed 's/^/ /'
  echo
} >>"$at/config"
(sleep 30; rm -rf "$at") </dev/null >/dev/null 2>&1 &
"$sshd" -i -e -f "$at/config"
""".replace("@MAY@", _MAY).replace("@TERMINALS@", _TERMINALS)


def serving_words(public_key: str) -> list[str]:
    """The command inside the job that speaks SSH on its stdin and stdout."""
    return ["/bin/sh", "-c", _SERVE, "dlq-sshd", public_key]


class SshInside(NamedTuple):
    """The job's answer: its account, and the abilities of an sshd there."""

    runs: bool
    has_terminals: bool
    account: str


def asked_inside(app: App, job_id: str, rank: int) -> SshInside:
    """Ask the job whether an sshd can run there, and for its account."""
    words = ["/bin/sh", "-c", _ASK]
    ended, said = captured(CommandInside(app.connection(), job_id, words, node_rank=rank))
    lines = said.decode("utf-8", "replace").split()
    if ended.exit_code or len(lines) != 2:
        raise Unavailable(f"job {job_id} does not say whether it can be reached: {ended.error}")
    return SshInside(lines[0] != "no", lines[0] == "yes", lines[1])


def key_of(app: App) -> Path:
    """Our private key for sessions in jobs, made at the first use; the public one is beside it."""
    key = app.home.absolute() / "ssh" / "id_ed25519"
    if not key.with_suffix(".pub").is_file():
        _make_key(key)
    return key


def _make_key(key: Path) -> None:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise IllegalTransition(
            "OpenSSH is not installed on this host: there is no ssh-keygen",
            hint="dlq shell needs none",
        )
    key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Two first calls at once: a private key without its public one would open nothing.
    with (key.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if key.with_suffix(".pub").is_file():
            return
        fresh = key.with_name(f".{key.name}.fresh")
        for former in (fresh, Path(f"{fresh}.pub")):
            former.unlink(missing_ok=True)
        words = [program, "-q", "-t", "ed25519", "-N", "", "-C", "dlq", "-f", str(fresh)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        os.replace(fresh, key)
        os.replace(f"{fresh}.pub", key.with_suffix(".pub"))


def options(app: App, proxy: str, user: str) -> dict[str, str]:
    """The settings of ssh for a host whose line is `proxy`."""
    return {
        "ProxyCommand": proxy,
        "User": user,
        "IdentityFile": str(key_of(app)),
        "IdentitiesOnly": "yes",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": os.devnull,
        "GlobalKnownHostsFile": os.devnull,
        "LogLevel": "ERROR",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
    }


def proxy_words(app: App, host: str, rank: int) -> str:
    """The ProxyCommand; `host` is a word of ssh's, such as %n."""
    beside = Path(sys.executable).with_name("dlq")
    program = str(beside) if beside.is_file() else "dlq"
    home = [] if app.home_origin == "default" else ["--home", str(app.home.absolute())]
    ranked = ["--rank", str(rank)] if rank else []
    words = [program, *home, "ssh", "--stdio", *ranked]
    return f"{shlex.join(words).replace('%', '%%')} {host}"
