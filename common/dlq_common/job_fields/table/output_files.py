"""Files that the output of a job is copied into; `dlq logs` keeps it in any case."""

from __future__ import annotations

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.limits import OneOf, Passes
from dlq_common.job_fields.reading import words
from dlq_common.job_fields.wire import Plain
from dlq_common.text.output_patterns import check_output_pattern

TITLE = "Output files"
STDOUT = JobField(
    key="output.stdout",
    read=words.read_output_pattern,
    flag="-o --output FILE",
    help="Copy stdout, and stderr without -e, into FILE on the node, with your rights there. "
    "Slurm's %j, %A, %a, %x, %u, %N, %n, %t and %s are replaced.  [default: dlq logs alone]",
    sample='"out-%j.txt"',
    comment="A file for the output, besides dlq logs; %j is the job's id.",
    wire=Plain[str]("output.stdout_path"),
    limit=Passes(check_output_pattern, "output file"),
    label="output file",
    to_agent=True,
)
STDERR = JobField(
    key="output.stderr",
    read=words.read_output_pattern,
    flag="-e --error FILE",
    help="Copy stderr into FILE instead.  [default: the file of stdout]",
    sample='"err-%j.txt"',
    comment="Another one for stderr.",
    wire=Plain[str]("output.stderr_path"),
    limit=Passes(check_output_pattern, "error file"),
    label="error file",
    to_agent=True,
)
OPEN_MODE = JobField(
    key="output.open_mode",
    read=words.one_of(words.OPEN_MODES),
    flag="--open-mode append|truncate",
    help="Keep or drop what these files held, at each start.  [default: the first start drops it]",
    sample='"append"',
    comment="At each start; default: only the first start drops what they held.",
    wire=Plain[str]("output.open_mode"),
    limit=OneOf(words.OPEN_MODES),
    to_agent=True,
)
