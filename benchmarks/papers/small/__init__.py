"""Policies beside the exact optimum, on instances small enough for one."""
