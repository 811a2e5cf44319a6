"""What is in the box: GPUs behind one port, and the host's own facts."""
