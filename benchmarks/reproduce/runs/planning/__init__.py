"""Computations of single decisions."""
