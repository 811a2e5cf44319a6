"""Shared by all output: tables, colours, times in the user's zone, JSON errors, and a safe
terminal.
"""
