"""Scripts for Slurm: `#SBATCH` options read, and converted to a spec or a `#DLQ` script."""
