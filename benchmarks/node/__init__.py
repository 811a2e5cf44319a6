"""The agent's side of a job: launches, pauses, resizes, and the load on the host."""
