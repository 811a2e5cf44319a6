"""The dlq command."""
