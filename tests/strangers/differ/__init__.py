"""Slurm's answers and dlq's, side by side: the same jobs, the same calls, on one machine.

make differ               # needs root, Debian's slurm-wlm, slurmdbd and mariadb-server
"""
