"""Figures for Prometheus at `GET /metrics`: the cluster, its health, and the master's host."""
