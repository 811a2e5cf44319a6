"""A job's field is declared once: in dlq_common.job_fields.table, and nowhere beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

from dlq.v1.job_pb2 import JobSpec
from dlq.v1.job_service_pb2 import UpdateJobRequest
from dlq_common.job_fields.table import FIELDS
from support.recorded_fields import paths

# Fields of JobSpec that no record of the table names, each with the reason.
BY_HAND = {
    **dict.fromkeys(("command", "script"), "one program, said in two ways"),
    **dict.fromkeys(
        ("resources.gpu_count", "resources.node_count"), "follow from three keys, and from roles"
    ),
    **dict.fromkeys(
        ("resources.gpu_type", "resources.or_gpu_types"), "one key: its first type stands apart"
    ),
    "resources.core_count": "follows from two keys: the cores, and no GPU on nodes with cpus",
    **dict.fromkeys(("resources.constraint", "environment", "labels"), "maps: merged by key"),
    **dict.fromkeys(("preempt.signal", "preempt.warning_duration"), "one key: SIG@SECONDS"),
    **dict.fromkeys(("array.ranges", "array.concurrent_count"), "a message: array"),
    **dict.fromkeys(
        ("dependency.terms", "dependency.any", "dependency.cancel_if_never"), "a message"
    ),
    **dict.fromkeys(("begin_time", "deadlines"), "instants, known when the job is sent"),
    **dict.fromkeys(
        ("lateness.due_duration", "lateness.due_time", "lateness.weight_per_hour"), "a message"
    ),
    **dict.fromkeys(("container.mounts", "container.secrets"), "several keys of a layer each"),
    "elastic.gpu_counts": "a list or a range",
    "retry.max_restart_counts": "beside max_restart_count, with which it is one key",
    "hook_notes": "said by the master alone",
    **dict.fromkeys(
        ("origin.script_path", "origin.command_line", "origin.host", "origin.session_number"),
        "known to the command that submits, never by a spec",
    ),
    "soft_limits": "known to Slurm's commands when they submit, never by a spec",
    **dict.fromkeys(
        ("interactive.attended", "interactive.stdin"),
        "said by commands that stay with their job, never by a spec",
    ),
}  # fmt: skip

# A field that is not there, over the wire of one that is; the limit is its own.
TOY = """
import json
from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.limits import Between
from dlq_common.job_fields.reading.words import read_nice
from dlq_common.job_fields.table import FIELDS
from dlq_common.job_fields.wire import Plain

FIELDS["toy"] = JobField(
    key="toy", read=read_nice, flag="--toy N", help="How much of a toy it is.", sample="3",
    comment="A toy.", wire=Plain[int]("nice"), limit=Between(-5, 5), label="toy", editable=True,
    to_agent=True,
)
from dlq.v1.agent_service_pb2 import Command, LaunchCommand, SessionResponse
from dlq.v1.job_pb2 import JobSpec
from dlq_cli.commands.jobs.submit import submit
from dlq_cli.commands.jobs.update import wishes
from dlq_cli.spec.fields import BY_NAME, layer_from
from dlq_cli.spec.message import to_message
from dlq_cli.spec.stored import stored_layer
from dlq_cli.spec.template import FORMS, template
from dlq_cli.spec.understood import understood
from dlq_cli.spec.validate import finish
from dlq_cli.spec.values.given import Given
from dlq_common.errors import InvalidRequest
from dlq_master.rpc.specs.spec import checked
from dlq_nodeagent.line.wire import decode

program = {"command": Given(("true",), "-")}
spec = finish({**program, **layer_from([(BY_NAME["--toy"], "3", "--toy")])}, directory="/")
message = to_message(spec)
launch = LaunchCommand(job_id="1", spec=message)
launch.hold_duration.seconds = 60
told = decode(SessionResponse(command=Command(sequence=1, epoch=1, launch=launch)))
try:
    refusal = ""
    checked(JobSpec(command=["true"], resources={"gpu_count": 1}, nice=6))
except InvalidRequest as error:
    refusal = error.what
print(json.dumps({
    "flag": any("--toy" in option.opts for option in submit.params),
    "template": [line for form in FORMS for line in template(form).splitlines() if "toy" in line],
    "message": message.nice,
    "stored": stored_layer(message, "job 1")["toy"].value,
    "understood": [line for line in understood(spec).splitlines() if "toy" in line],
    "refusal": refusal,
    "update": wishes(["toy=4"], 0.0).nice,
    "launch": told.order.fields,
}))
"""


def test_every_field_of_a_spec_is_in_the_table_once_or_has_a_reason() -> None:
    declared = Counter(field.wire.path for field in FIELDS.values() if field.wire is not None)
    assert [path for path, times in declared.items() if times > 1] == []
    there = set(paths(JobSpec.DESCRIPTOR))
    assert declared.keys() | BY_HAND.keys() == there
    assert declared.keys() & BY_HAND.keys() == set()


def test_what_users_may_change_has_the_same_name_in_the_request() -> None:
    there = UpdateJobRequest.DESCRIPTOR.fields_by_name
    for field in FIELDS.values():
        if field.editable:
            assert field.wire is not None
            assert field.wire.path in there
            assert not field.clear or field.clear in there


def test_a_field_that_is_added_to_the_table_is_everywhere() -> None:
    done = subprocess.run([sys.executable, "-c", TOY], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "flag": True,
        "template": [
            "# toy = 3                                        # A toy.",
            "# toy: 3                                         # A toy.",
            "#   --toy=N  How much of a toy it is.",
        ],
        "message": 3,
        "stored": 3,
        "understood": ["toy:         3  (--toy)"],
        "refusal": "nice must be between -5 and 5",
        "update": 4,
        "launch": {"toy": 3},
    }
