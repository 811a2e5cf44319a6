"""The loop and the state that it owns: stimuli in, one commit a turn, replies and commands out.

`loop` has the steps of a turn. Each other package decides one subject, and has its part of the
state in its state.py. `composition` puts them together. `config` is the configuration.
"""
