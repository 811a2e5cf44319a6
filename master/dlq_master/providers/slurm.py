"""Machines are pilot jobs in an existing Slurm: each runs an agent for as long as its job lives.

The job's name is the request id, so that `squeue` finds it again; its id is the instance id. A
pilot announces that it leaves when Slurm warns it (`--signal=B:USR1@...`: before its time limit, or
at a preemption with send_user_signal) or ends it (SIGTERM). A killed pilot is not listed any more.
The next one on its host removes the directory that it left.

The join token of a pilot is in no job script, argument or environment. It is a file of the
account, in a directory that the hosts of Slurm see too. It is good for one node, one key and at
most an hour.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlq_master.control.pool_config import PoolConfig
from dlq_master.control.stimuli.machines import Listed
from dlq_master.providers.calls import call, home_of
from dlq_master.providers.port import MachineWish, ProviderFailed

# States of jobs that are there or coming; a completing job may still save.
_STATES = "PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED,COMPLETING"
_SCRIPT = """\
#!/bin/sh
# A pilot of dlq: an agent that serves its master until it is told to go.
# A killed pilot leaves its directory with its key. Processes of a pilot that lives hold the lock in theirs.
for left in "${{TMPDIR:-/tmp}}"/dlq-pilot-??????; do
  [ -O "$left" ] && [ ! -L "$left" ] && [ -f "$left/pilot" ] && flock -n "$left/pilot" rm -rf "$left"
done
state=$(mktemp -d "${{TMPDIR:-/tmp}}/dlq-pilot-XXXXXX") || exit 1
exec 9>"$state/pilot" && flock -n 9 || exit 1
{agent} join - --master {master} --wait 10m --name {node}{config} --state-dir "$state" <{token} || exit 1
rm -f {token}
serve() {{ {agent} run{config} --state-dir "$state" --pool {pool} --instance "$SLURM_JOB_ID" & agent=$!; }}
# Slurm warns (USR1), or ends us, and with us the agent (TERM): it serves on as long as somebody is here who saves.
going() {{ again=; case $({agent} leave --for {leave}{config} --state-dir "$state") in [1-9]*) again=1 ;; esac; }}
trap going TERM USR1
again=; serve
while :; do
  wait $agent
  kill -0 $agent 2>/dev/null && continue
  [ -n "$again" ] || break
  again=; serve
done
rm -rf "$state"
"""  # noqa: E501
# A token is a file that its owner alone can read. The words of a command are for everybody to read.
_KEEP = 'umask 077; mkdir -p "$1" && chmod 700 "$1" && cat >"$1/.$2" && mv -f "$1/.$2" "$1/$2"'
_FORGET = 'rm -f "$1/$2" "$1/.$2"'


@dataclass(frozen=True, slots=True)
class SlurmProvider:
    """See the port. The pool's `leave` says how long jobs have to save once Slurm stops a pilot, as
    its KillWait or GraceTime does.
    """

    pool: PoolConfig

    def start(self, wish: MachineWish) -> str:
        """See the port. One that is in the queue already is not asked for again."""
        from shlex import quote  # a master without such a pool starts without it

        known = [one.instance_id for one in self._named(wish.request_id)]
        if known:
            return known[0]
        leave = max(1, round(self.pool.leave))
        config = f" --config {quote(self.pool.pilot_config)}" if self.pool.pilot_config else ""
        script = _SCRIPT.format(
            token=quote(f"{self._token_dir}/{wish.request_id}"),
            agent=quote(self.pool.pilot),
            master=quote(wish.join_address),
            node=quote(wish.node_id),
            pool=quote(wish.pool),
            config=config,
            leave=f"{leave}s",
        )
        self._shell(_KEEP, wish.request_id, text=wish.token + "\n")
        warned = f"--signal=B:USR1@{leave}"
        words = ("sbatch", "--parsable", f"--job-name={wish.request_id}", "--no-requeue", warned)
        told = self._call(*words, *self.pool.sbatch, text=script).strip().partition(";")[0]
        if not told.isdecimal():
            raise ProviderFailed(f"sbatch did not print a job id: {told[:80]!r}")
        return told

    def stop(self, request_id: str, instance_id: str) -> bool:
        """See the port: by its name, so that also one goes of which nobody heard."""
        if self._named(request_id):
            self._call("scancel", f"--name={request_id}")
        self._shell(_FORGET, request_id)
        return not self._named(request_id)

    def list(self) -> tuple[Listed, ...]:
        """See the port."""
        words = ("squeue", "--noheader", "--me", f"--states={_STATES}", "--format=%i|%j")
        rows = [line.strip().partition("|") for line in self._call(*words).splitlines()]
        mine = f"{self.pool.name}-"
        return tuple(
            Listed(name, job_id) for job_id, _, name in rows if name.startswith(mine) and job_id
        )

    def _named(self, request_id: str) -> tuple[Listed, ...]:
        return tuple(one for one in self.list() if one.request_id == request_id)

    @property
    def _token_dir(self) -> str:
        """Where the pilots of this account find their tokens."""
        return self.pool.token_dir or f"{home_of(self.pool.user)}/.dlq-pilots"

    def _shell(self, script: str, request_id: str, *, text: str = "") -> None:
        self._call("sh", "-c", script, "sh", self._token_dir, request_id, text=text)

    def _call(self, *words: str, text: str = "") -> str:
        pool = self.pool
        return call(words, text=text, timeout_s=pool.timeout, user=pool.user, helper=pool.helper)
