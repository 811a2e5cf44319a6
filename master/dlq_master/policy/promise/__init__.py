"""Promised deadlines, and the slots that keep the promises (Chronus)."""
