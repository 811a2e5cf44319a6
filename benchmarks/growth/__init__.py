"""The cost of each operation of the master's core over the size of its cluster, as curves."""
