"""Jobs that are priced instead of queued: node types, GPUs and order for the least cost of renting
and of being late.
"""
