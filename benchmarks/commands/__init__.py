"""Commands as a user types them, beside real Slurm where that is installed."""
