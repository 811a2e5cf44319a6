"""Providers of rented machines, behind one port; used outside of the loop."""
