"""A real master, with real or virtual agents: submits, starts, reads and restarts."""
