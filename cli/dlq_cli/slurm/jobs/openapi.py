"""Jobs in the JSON of squeue and of `scontrol show job`."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_cli.lists.slurm_states import queue_state
from dlq_cli.output.slurm_page import controller_page
from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.jobs.seen import SeenJob, stderr_of, stdin_of, stdout_of
from dlq_common.text.hostlist import compress_hostlist


def jobs_page(jobs: Sequence[SeenJob]) -> dict[str, object]:
    return controller_page(jobs=[job_object(job) for job in jobs])


def job_object(job: SeenJob) -> dict[str, object]:
    """All keys of openapi v0.0.38, in its order; a thing that dlq has not is as Slurm's unset."""
    wire, nodes = job.job, compress_hostlist(job.nodes)
    task = wire.array_task
    in_array = job.in_array
    held = bool(job.nodes)
    return {
        "account": job.account,
        "accrue_time": int(job.eligible_s),
        "admin_comment": "",
        "array_job_id": int(task.array_id) if in_array else 0,
        "array_task_id": task.index if in_array else None,
        "array_max_tasks": task.concurrent_count,
        "array_task_string": "",
        "association_id": 0,
        "batch_features": "",
        "batch_flag": job.is_batch,
        "batch_host": next(iter(job.nodes), ""),
        "flags": [],
        "burst_buffer": "",
        "burst_buffer_state": "",
        "cluster": job.cluster,
        "cluster_features": "",
        "command": job.command,
        "comment": job.comment,
        "container": job.spec.container.image,
        "contiguous": False,
        "core_spec": None,
        "thread_spec": None,
        "cores_per_socket": None,
        "billable_tres": float(job.cpus) if held else None,
        "cpus_per_task": job.cpus_per_task if job.cpus_per_task > 1 else None,
        "cpu_frequency_minimum": None,
        "cpu_frequency_maximum": None,
        "cpu_frequency_governor": None,
        "cpus_per_tres": "",
        "deadline": 0,
        "delay_boot": 0,
        "dependency": wire.dependency,
        "derived_exit_code": 0,
        "eligible_time": int(job.eligible_s),
        "end_time": int(job.end_s),
        "excluded_nodes": compress_hostlist(wire.resources.excluded_node_ids),
        "exit_code": job.exit_status,
        "features": "&".join(f"{key}={text}" for key, text in wire.resources.constraint.items()),
        "federation_origin": "",
        "federation_siblings_active": "",
        "federation_siblings_viable": "",
        "gres_detail": [],
        "group_id": job.gid,
        "group_name": job.group,
        "job_id": int(job.raw_id or 0),
        **({"job_resources": _resources(job)} if held else {}),
        "job_state": queue_state(wire),
        "last_sched_evaluation": int(job.eligible_s),
        "licenses": "",
        "max_cpus": 0,
        "max_nodes": 0,
        "mcs_label": "",
        "memory_per_tres": "",
        "name": wire.name,
        "nodes": nodes,
        "nice": wire.nice or None,
        "tasks_per_core": None,
        "tasks_per_node": job.tasks_per_node,
        "tasks_per_socket": None,
        "tasks_per_board": 0,
        "cpus": job.cpus,
        "node_count": job.node_count,
        "tasks": job.tasks,
        "het_job_id": int(job.het_id or 0),
        "het_job_id_set": job.het_set,
        "het_job_offset": job.het_offset or 0,
        "partition": wire.queue,
        "prefer": "",
        "memory_per_node": job.memory_mib or None,
        "memory_per_cpu": None,
        "minimum_cpus_per_node": job.cpus_per_task,
        "minimum_tmp_disk_per_node": 0,
        "preempt_time": 0,
        "pre_sus_time": 0,
        "priority": job.priority,
        "profile": None,
        "qos": job.qos,
        "reboot": False,
        "required_nodes": compress_hostlist(wire.resources.node_ids),
        "requeue": True,
        "resize_time": 0,
        "restart_cnt": job.restarts,
        "resv_name": "",
        "shared": None,
        "show_flags": ["SHOW_ALL", "SHOW_DETAIL", "SHOW_LOCAL"],
        "sockets_per_board": 0,
        "sockets_per_node": None,
        "start_time": int(job.start_s),
        "state_description": "",
        "state_reason": words.reason(wire),
        "standard_error": stderr_of(job),
        "standard_input": stdin_of(job),
        "standard_output": stdout_of(job),
        "submit_time": int(job.submit_s),
        "suspend_time": 0,
        "system_comment": "",
        "time_limit": job.limit_minutes,
        "time_minimum": 0,
        "threads_per_core": None,
        "tres_bind": "",
        "tres_freq": "",
        "tres_per_job": job.gres_per_job,
        "tres_per_node": job.gres_per_node,
        "tres_per_socket": "",
        "tres_per_task": "",
        "tres_req_str": job.tres,
        "tres_alloc_str": job.tres if held else "",
        "user_id": job.uid,
        "user_name": wire.user,
        "wckey": "",
        "current_working_directory": job.directory,
    }


def _resources(job: SeenJob) -> dict[str, object]:
    each = job.cpus // max(1, job.node_count)
    return {
        "nodes": compress_hostlist(job.nodes),
        "allocated_cpus": job.cpus,
        "allocated_hosts": len(job.nodes),
        "allocated_nodes": [
            {
                "sockets": {"0": {"cores": {str(core): "allocated" for core in range(each)}}},
                "nodename": name,
                "cpus_used": 0,
                "memory_used": 0,
                "memory_allocated": job.memory_mib,
            }
            for name in job.nodes
        ],
    }
