"""`dlq spec`: write, check and convert specs without a master."""
