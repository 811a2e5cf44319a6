"""Trials: run a job for a while to learn how long it runs (Chronus, section 3.2)."""
