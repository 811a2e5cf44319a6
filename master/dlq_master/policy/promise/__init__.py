"""Deadlines that hold: the jobs with SLO leases in each slot, and the possible promises
(Chronus).
"""
