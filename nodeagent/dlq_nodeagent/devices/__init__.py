"""The devices of the box: GPUs behind one port, and the host's own facts."""
