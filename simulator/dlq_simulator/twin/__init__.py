"""The twin: the simulator started from a master's live state, in a process of its own."""
