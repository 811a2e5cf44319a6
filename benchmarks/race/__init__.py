"""dlq beside a real Slurm, line by line, in interleaved pairs: `make race`."""
