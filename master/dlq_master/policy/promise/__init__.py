"""Deadlines that hold: which jobs get SLO leases when, and what may be promised to whom
(Chronus).
"""
