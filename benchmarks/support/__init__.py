"""The shared parts: conditions, reports, a master to measure, and virtual agents."""
