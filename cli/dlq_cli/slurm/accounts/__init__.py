"""`sacct`: states, exit codes and accounts of jobs."""
