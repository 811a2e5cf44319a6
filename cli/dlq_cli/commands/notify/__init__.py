"""`dlq notify`: mails and calls of web addresses when something happens to one's jobs."""
