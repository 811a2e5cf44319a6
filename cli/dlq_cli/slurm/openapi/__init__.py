"""The JSON of Slurm 22.05 (openapi v0.0.38), for `--json` of squeue, sinfo and sacct."""
