"""The help text of scontrol, and the verbs that dlq refuses, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping

HELP = """\
scontrol [<OPTION>] [<COMMAND>]
    Valid <OPTION> values are:
     -a, --all      Equivalent to "all" command
     -d, --details  Equivalent to "details" command
     -h, --help     Equivalent to "help" command
     -M, --cluster  The cluster to ask: only this one
     -o, --oneliner Equivalent to "oneliner" command
     -Q, --quiet    Equivalent to "quiet" command
     -v, --verbose  Equivalent to "verbose" command
     -V, --version  Equivalent to "version" command

    Valid <COMMAND> values are:
     completing               display jobs in completing state
     hold <job_list>          prevent specified job from starting
     listpids <job_id<.step>> the processes of the jobs on this node
     notify <job_id> msg      send message to specified job
     ping                     print status of slurmctld daemons
     release <job_list>       permit specified job to start (see hold)
     requeue <job_id>         re-queue a batch job
     requeuehold <job_id>     re-queue and hold a batch
     resume <jobid_list>      resume previously suspended job (see suspend)
     show <ENTITY> [<ID>]     display state of identified entity
     suspend <job_list>       suspend specified job (see resume)
     uhold <jobid_list>       place user hold on specified job (see hold)
     update <SPECIFICATIONS>  update job or node
     version                  display tool version number
     wait_job <job_id>        wait until the nodes of the job are usable
     write batch_script <job_id> <optional filename>

  <ENTITY> may be "config", "daemons", "federation", "hostlist", "hostlistsorted",
       "hostnames", "job", "licenses", "node", "partition", "reservation", "step",
       or "topology"
"""
_INNER = "dlq's master is not steered by scontrol; see `dlq admin --help`"
REFUSED: Mapping[str, str] = {
    "abort": _INNER,
    "cancel_reboot": "dlq reboots no nodes",
    "cluster": "there is one cluster here; -M names it",
    "create": "`dlq admin reserve` makes reservations; queues are in the master's configuration",
    "delete": "`dlq admin reserve cancel` ends reservations; queues are in the configuration",
    "errnumstr": "dlq's errors have words, not numbers",
    "fsdampeningfactor": "shares are in the policy: `dlq admin policy`",
    "pidinfo": "ask `dlq show` on the job",
    "reboot": "dlq reboots no nodes: drain the node, then reboot it",
    "reconfigure": _INNER,
    "schedloglevel": _INNER,
    "setdebug": _INNER,
    "setdebugflags": _INNER,
    "shutdown": _INNER,
    "takeover": "there is no backup controller",
    "token": "dlq knows people by certificates: `dlq login`",
    "top": "`dlq update JOB nice=-N` is for operators; a user orders own jobs by their `nice`",
}
