"""`dlq report` and `dlq usage`: what the cluster did."""
