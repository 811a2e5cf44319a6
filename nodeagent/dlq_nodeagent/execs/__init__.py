"""`dlq exec` on the node: programs that are started inside running ranks."""
