"""The SDK: talk to a dlq master from Python."""
