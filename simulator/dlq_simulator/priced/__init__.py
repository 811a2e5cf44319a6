"""The world of priced nodes: one job on one node, nodes rented and released, jobs resized at every
decision.
"""
