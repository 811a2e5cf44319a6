"""Commands inside ranks that run: `dlq exec`, as the node sees it."""
