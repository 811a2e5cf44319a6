"""The cost of recording the traffic of a job, and of its analysis."""
