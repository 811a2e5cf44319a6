"""A master whose terms are seconds instead of minutes, so that there is something to see."""

STAYS = ', min_run = "3600"'  # who runs gives way to nobody but a deadline, or who owns its machine


def quick(more: str = "", *, lease: str = "", settings: str = "") -> str:
    """What is appended to the configuration: `lease` and `settings` beside those here, and `more` tables."""
    return f"""
[lease]
heartbeat = "1s"
be_term = "4s"
slo_term = "8s"
save_lead = "1s"
resume = "1s"
{lease}

[nodes]
reconnect_jitter = "1s"
start_grace = "10s"

[twin]
enabled = false

[scheduler]
policy = "dlq"
settings = {{ be_floor = "0"{settings} }}

{more}
"""
