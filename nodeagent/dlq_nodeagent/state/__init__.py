"""The agent's own directory: a journal and files that a crash leaves whole.

`journal` survives restarts, `instance` tells copies of one agent apart, `disk_watch` measures free
space.
"""
