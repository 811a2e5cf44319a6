"""Policies beside those of the papers, on drawn and on published workloads."""
