"""The relay beside the master: a process that joins callers and agents, and moves their bytes."""
