"""`dlq stacks`: where the Python processes of a job stand just now, by py-spy inside the job."""

from __future__ import annotations

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.inside.exec import running_job, stay_with
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.lists.select import one_job
from dlq_cli.output.render import clean_line
from dlq_cli.text.stacks import apart, standing
from dlq_client.jobs import Jobs
from dlq_common.errors import IllegalTransition

# It runs as the job's user, in the job's group: it sees the processes of this rank alone, by their
# environment. Exit code 127: py-spy is missing; 1: nothing could be shown.
SCRIPT = """\
of() { tr '\\0' '\\n' <"$1/environ" 2>/dev/null | sed -n "s/^$2=//p" | head -1; }
# Of the job's PATH, or beside the interpreter: a script may name that of an environment of its own.
spy_of() {
    command -v py-spy && return
    beside=$(tr '\\0' '\\n' <"$1/cmdline" | head -1)
    case $beside in /*) beside=${beside%/*}/py-spy; [ -x "$beside" ] && echo "$beside" ;; esac
}
found=0 shown=0 missing=0
for each in /proc/[0-9]*; do
    case $(readlink "$each/exe" 2>/dev/null) in */python*) ;; *) continue ;; esac
    [ "$(of "$each" DLQ_JOB_ID)" = "$DLQ_JOB_ID" ] || continue
    [ "$(of "$each" DLQ_NODE_RANK)" = "$DLQ_NODE_RANK" ] || continue
    found=$((found + 1))
    spy=$(spy_of "$each")
    if [ -z "$spy" ]; then
        missing=$((missing + 1))
        continue
    fi
    process=$(of "$each" RANK)
    [ -z "$process" ] || echo "RANK $process:"
    "$spy" dump --pid "${each#/proc/}" && shown=$((shown + 1))
done
if [ $missing -gt 0 ]; then
    echo "py-spy is not installed where the job runs: pip install py-spy into its environment" >&2
    exit 127
fi
if [ $found -eq 0 ]; then
    echo "no Python process of this rank is running" >&2
    exit 1
elif [ $shown -lt $found ]; then
    echo "py-spy failed on $((found - shown)) of $found processes. It needs the sysctl" >&2
    echo "kernel.yama.ptrace_scope = 0, and in a container the right SYS_PTRACE" >&2
    exit 1
fi
"""


@click.command(epilog=examples("dlq stacks 17", "dlq stacks --rank 3 17"))
@click.option(
    "--rank",
    "ranks",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="R",
    help="Only this rank of a node; may be repeated.  [all]",
)
@click.argument("job")
@pass_app
def stacks(app: App, job: str, ranks: tuple[int, ...]) -> None:
    """Print the stacks of the Python processes of JOB, rank by rank.

    For a job that hangs: `dlq show` names the rank that fell behind, and the last line here names
    the ranks whose main thread stands elsewhere than most. The processes are stopped for
    some milliseconds while py-spy looks at them; it must be installed where the job runs.
    """
    jobs = Jobs(app.connection())
    job_id = running_job(app, one_job(jobs, job))
    nodes = jobs.get(job_id).job.node_ids
    if not nodes:
        raise IllegalTransition(f"job {job_id} does not run, so it has no stacks")
    code, places = 0, dict[str, str]()
    for rank in ranks or range(len(nodes)):
        place = f" on {nodes[rank]}" if rank < len(nodes) else ""
        click.echo(f"--- rank {rank}{place}")
        said = bytearray()
        try:
            words = ["/bin/sh", "-c", SCRIPT, "dlq-stacks"]
            stay_with(app, job_id, words, rank=rank, stdin=False, heard=said.extend)
        except exit_codes.Ended as ended:
            code = ended.code
            if code == exit_codes.INTERRUPTED:
                break
        places |= standing(rank, said.decode("utf-8", "replace"))
    if told := apart(places):
        click.echo(f"--- {clean_line(told)}")
    if code:
        raise exit_codes.Ended(code)
