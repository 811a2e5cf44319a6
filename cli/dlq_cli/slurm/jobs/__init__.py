"""Jobs as Slurm's programs see them: one place for each fact that several programs print."""
