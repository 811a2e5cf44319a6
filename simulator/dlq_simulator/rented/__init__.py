"""Machines that are rented beside nodes of one's own."""
