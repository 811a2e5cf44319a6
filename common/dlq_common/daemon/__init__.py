"""What both daemons share: configuration, logs, and the protocol of systemd."""
