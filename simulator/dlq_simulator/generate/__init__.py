"""Workloads as the papers describe them, each from a seed; the same seed gives the same bytes."""
