"""Figures of the papers, in shape, from the results of the cases."""
