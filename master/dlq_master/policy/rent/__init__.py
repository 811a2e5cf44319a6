"""Renting beside the cluster's own nodes: for whom, where, and whether it pays."""
