"""The ways to send a message: `mail` by SMTP, `webhook` to a program, and `chat` to Slack,
Mattermost and Teams. `guarded` makes every call of a web address, and lets none into the site's own
network.
"""
