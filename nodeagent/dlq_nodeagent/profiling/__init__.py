"""The traffic profiler in the agent: put into a rank, switched off, read, sent, and removed."""
