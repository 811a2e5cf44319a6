"""Iterations found in recordings, by transport: NCCL calls, gloo, parameter servers, recurring
addresses.
"""
