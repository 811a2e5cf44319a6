"""`salloc`, and `srun` outside a job: nodes are given out to a client that stays with them.

An allocation is a job whose script only waits (holder.py). Its client renews it every few seconds
(dlq_cli.interactive.attendance), runs commands in it by ExecJob, and tells the script how to end.
"""
