"""Slurm's commands on a dlq cluster, for scripts and frameworks that call them: `dlq slurm NAME
...`.
"""
