"""Machines are pilot jobs in an existing Slurm: each runs an agent for as long as its job lives.

The job's name is the request id, so that `squeue` finds it again; its id is the instance id. A
pilot announces that it leaves when Slurm warns it (`--signal=B:USR1@...`: before its time limit, or
at a preemption with send_user_signal) or ends it (SIGTERM). A killed pilot is not listed any more.
The next one on its host removes the directory that it left.
"""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote

from dlq_master.control.pool_config import PoolConfig
from dlq_master.control.stimuli.machines import Listed
from dlq_master.providers.calls import call
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
printf '%s\\n' {token} | {agent} join - --master {master} --wait 10m --name {node}{config} --state-dir "$state" || exit 1
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


@dataclass(frozen=True, slots=True)
class SlurmProvider:
    """See the port. The pool's `leave` says how long jobs have to save once Slurm stops a pilot, as
    its KillWait or GraceTime does.
    """

    pool: PoolConfig

    def start(self, wish: MachineWish) -> str:
        """See the port. One that is in the queue already is not asked for again."""
        known = [one.instance_id for one in self._named(wish.request_id)]
        if known:
            return known[0]
        leave = max(1, round(self.pool.leave))
        config = f" --config {quote(self.pool.pilot_config)}" if self.pool.pilot_config else ""
        script = _SCRIPT.format(
            token=quote(wish.token),
            agent=quote(self.pool.pilot),
            master=quote(wish.join_address),
            node=quote(wish.node_id),
            pool=quote(wish.pool),
            config=config,
            leave=f"{leave}s",
        )
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

    def _call(self, *words: str, text: str = "") -> str:
        return call(words, text=text, timeout_s=self.pool.timeout, user=self.pool.user)
