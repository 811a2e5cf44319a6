"""Shared by commands about single jobs: output streams, holds, differences, and files named by
users.
"""
