"""Computations on the logs of real clusters."""
