"""What master and agents agree on for jobs that torchrun resizes while they run (docs/elastic.md)."""

LIVE = "live"  # the word of a spec

# torchrun counts it as a restart when workers end because others leave, and when they fail by themselves.
# Twice what the master has resized an attempt by then (model/live.py), so that failures are left some.
RESTARTS_PER_ATTEMPT = 16
