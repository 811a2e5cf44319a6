"""Commands about the user's list of clusters."""
