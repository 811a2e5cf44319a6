"""Benchmarks of the parts of Chronus: its program, its leases and its placements."""
