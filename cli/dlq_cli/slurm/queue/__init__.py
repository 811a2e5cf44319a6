"""`squeue`: jobs that wait and run, in Slurm's columns."""
