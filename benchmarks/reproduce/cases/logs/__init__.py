"""Tables of the logs of real clusters."""
