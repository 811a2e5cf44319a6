"""`sinfo`, and nodes and partitions as `scontrol show` prints them."""
