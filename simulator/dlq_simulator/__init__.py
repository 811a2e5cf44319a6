"""The simulator: the master's own core driven by a workload trace instead of a cluster."""
