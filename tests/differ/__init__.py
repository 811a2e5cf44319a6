"""Slurm's answers and dlq's, side by side: the same jobs, the same calls, on one machine.

    make differ               # needs root, Debian's slurm-wlm, slurmdbd and mariadb-server

It ends with 1 if a difference has no entry in `explained`, or if an entry explains nothing. With
--record it writes Slurm's answers to tests/data/slurm_answers.json, and `make test-rest` holds
dlq's against them.
"""
