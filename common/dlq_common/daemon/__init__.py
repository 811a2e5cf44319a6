"""Configuration, logs and the protocol of systemd, for both daemons."""
