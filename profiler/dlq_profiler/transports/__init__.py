"""Iterations found in recordings: NCCL calls, gloo, parameter servers, addresses."""
